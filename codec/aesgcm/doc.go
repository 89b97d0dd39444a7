// Package aesgcm seals payloads by AES-256-GCM before a store keeps them, with a
// ring of keys that can be rotated while programs run.
//
// One key of the ring, the primary, seals. All of them open: the id of the key
// that sealed a payload stands beside it in the document (key_id). The event's
// id is authenticated with the payload, so that one that was copied to another
// event doesn't open. Other fields of an event are stored as they are: keep
// secrets in the payload.
//
// A sealed payload is a random nonce of 12 bytes, the ciphertext, and the tag of
// 16 bytes (NIST SP 800-38D, section 8.2.2), with the event's id in UTF-8 as
// additional data. A key must seal fewer than 2^32 payloads; rotate earlier.
//
// To rotate: give every process the new key beside the old ones; when all have
// it, make it the primary; remove an old key when nothing that it sealed is
// stored any more, that is after the retention of log and queue. An event whose
// key is gone is rejected with a *MissingKeyError, kept as failed, and can be
// retried once the key is back.
package aesgcm
