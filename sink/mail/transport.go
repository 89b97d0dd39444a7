package mail

import (
	"context"

	"github.com/gooutbox/outbox/core"
)

// Transport hands one mail to whatever carries it further: an SMTP server, a
// provider's API, a folder. It classifies and never retries: trying again is the
// relay's work, after the ledger was asked. Its methods may be called by several
// goroutines at once.
type Transport interface {
	// Send sends the mail to all recipients of the envelope and returns one
	// result per recipient, in the order of Envelope.Recipients. The outcomes
	// mean:
	//
	//   - Delivered: the server took responsibility for this recipient. Receipt
	//     is what it calls the mail: a provider's id, or its answer to the data.
	//   - Refused: this recipient not now, such as a full mailbox. Where the
	//     server says when, or greylists, RetryAfter is how long not to try again.
	//   - Rejected: no later attempt can succeed, such as an unknown mailbox.
	//   - Unavailable: the server as a whole takes nothing: no connection, wrong
	//     credentials.
	//   - Throttled: the server asks for a pause of RetryAfter. Result.Throttles
	//     names what: the sink (its Name may stay empty), the tenant, or the
	//     recipient's domain.
	//   - Unknown: the whole mail went out for this recipient and no answer came.
	//   - NotAttempted: nothing was sent for this recipient, such as when ctx had
	//     ended already.
	//
	// Err is set where the outcome isn't Delivered, and holds no secret and
	// nothing of the body. Send returns when ctx ends, at the latest after what
	// the protocol needs to be left in a sane state. After it returned nothing
	// more is sent, except for recipients whose outcome is Unknown.
	Send(ctx context.Context, mail Envelope) []core.Result
	// Close frees connections. It returns when ctx ends, may be called more than
	// once, and while Send runs: those calls then end, and answer truthfully.
	Close(ctx context.Context) error
}

// Envelope is one mail as a transport gets it. It is read only: Message is
// shared with other attempts.
type Envelope struct {
	// JobID is the mail's id in the ledger. A transport that takes an idempotency
	// token derives it from this.
	JobID string
	// Tenant whose mail it is; may be empty.
	Tenant string
	// Sender is the address of the envelope (RFC 5321 MAIL FROM), to which
	// bounces go: local@domain, without a name. Its domain, as that of each
	// recipient, is in ASCII form (IDNA A-labels).
	Sender string
	// Recipients are the addresses that are still to be sent to, in the order To,
	// Cc, Bcc of the mail, without repeats. At least one.
	Recipients []string
	// Message is the whole mail (RFC 5322): CRLF line ends, no line of more than
	// 998 bytes, no Bcc field, the same bytes at each attempt as long as its
	// template and data are the same. It ends with CRLF.
	Message []byte
	// Tags for the provider's statistics. Names and values hold ASCII letters,
	// digits, "_" and "-" only, at most 256 bytes each.
	Tags map[string]string
	// SMTPUTF8: the sender, a recipient or a header has characters beyond ASCII
	// that need RFC 6531. A transport that can't do it answers Rejected.
	SMTPUTF8 bool
}
