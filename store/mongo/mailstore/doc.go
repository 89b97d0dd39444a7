// Package mailstore keeps what is known of mails in MongoDB: the ledger that
// keeps a mail from being sent twice, with its audit, and the list of addresses
// that are not sent to.
//
// Each mail is one document, so that reserving it and finishing it are one write
// each; the writes of mails that go out at the same time are gathered into one
// command. All times are the server's. Reads and writes use majority concerns
// whatever the client's address says.
//
// The collections are <prefix>_mails and <prefix>_suppressed. They hold addresses
// and the answers of servers, but no subject, body, template data or secret.
package mailstore
