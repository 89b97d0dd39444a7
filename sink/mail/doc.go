// Package mail is a sink that sends mails, each once: a job is written in the
// transaction of the change that it tells, rendered and sent by a Transport, and
// its whole story can be read afterwards from a Ledger.
//
// What was sent is known because each send is reserved in the ledger before its
// first byte leaves, and finished there afterwards. A worker that died between
// the two leaves a mail of unknown outcome, which is not sent again unless a
// policy or a person says so.
package mail
