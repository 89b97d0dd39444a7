package mail

import (
	"context"
	"errors"
	"time"

	"github.com/gooutbox/outbox/core"
)

// Ledger remembers what became of each mail: it is what keeps a mail from being
// sent twice, and its audit. There is one Record per mail, which holds its state,
// the outcome of each recipient, and its steps, so that reserving and finishing
// are one write each. It holds no bodies, subjects, data of templates or secrets.
//
// Times are the ledger's own, such as the database server's. Its methods may be
// called by several goroutines at once, and an implementation may gather the
// calls that wait at the same time into one command: Reserve, Finish and Queue
// act on each mail alone, and an error of one is not an error of another.
//
// Writes count once the majority acknowledged them. Every method may be called
// again after an error, with the same arguments, to the same effect.
type Ledger interface {
	// Reserved tells which of the jobs may be between Reserve and Finish: those
	// in StateReserved and StateUnknown. A mail that is known to be sent is not
	// among them: its job may be lent again, and Reserve then tells VerdictDone.
	core.Reservations
	// Queue writes the first step, StepQueued, of mails in the transaction that
	// ctx carries, if it carries one. A mail that has a record already is left as
	// it is. It is optional: Reserve makes a record that is missing.
	Queue(ctx context.Context, mails ...Queued) error
	// Reserve takes the right to send the mail now, or tells why not. Of two
	// that ask at the same time one gets it. It is decided by what the record is:
	//
	//   - missing, StateQueued, or StateRefused (an operator made the job ready
	//     again): it becomes StateReserved under req.Token until req.For has
	//     passed. VerdictReserved.
	//   - StateReserved under the same token: VerdictReserved, nothing written.
	//   - StateReserved under another token, for which For has not passed yet:
	//     VerdictInFlight, nothing written.
	//   - StateReserved under another token whose For has passed: who held it
	//     died, or froze. Recipients in RecipientPending become RecipientUnknown
	//     and the state StateUnknown, with a StepUnknown. VerdictUnknown.
	//   - StateUnknown: VerdictUnknown, nothing written.
	//   - StateSent or StateDiscarded: VerdictDone, nothing written.
	//
	// With req.TakeUnknown the two cases of VerdictUnknown reserve instead, and
	// recipients in RecipientUnknown become RecipientPending; the steps are then
	// StepUnknown (where it is new), StepRedelivered and StepAttempt.
	//
	// Reserving writes StepRedelivered, if req.Redelivered and TakeUnknown didn't,
	// and StepAttempt; sets Hash, Message-ID and the other fields from the
	// request, except that an empty one leaves what is there; makes RecipientRejected and RecipientSuppressed pending again when
	// the state was StateRefused; adds recipients of the request that the record
	// lacks as pending; and clears ExpireAt.
	Reserve(ctx context.Context, req ReserveRequest) (Reservation, error)
	// Finish writes what became of an attempt: state, recipients, provider's id
	// and one step. It applies where the record is held by the token, that is in
	// StateReserved, or in StateUnknown because another Reserve found this
	// reservation's time passed. Where it isn't (a person resolved the mail, or it
	// was taken by TakeUnknown meanwhile) the step alone is added, so that the
	// audit shows it, and the error is ErrReservationLost. Finishing again under
	// the same token with the same step is no error and changes nothing.
	Finish(ctx context.Context, f Finish) error
	// Resolve applies a person's decision about a mail. It answers ErrNoMail if
	// there is no record, and ErrNotResolvable if the state is not one that the
	// decision may change, see Decision. To repeat a decision changes nothing.
	Resolve(ctx context.Context, r Resolution) (Record, error)
	// Feedback adds a step to the mail that the provider knows by f.ProviderID,
	// once by f.ID. It tells false where no record has that id.
	Feedback(ctx context.Context, f Feedback) (bool, error)
	// Mail returns one record, or ErrNoMail.
	Mail(ctx context.Context, jobID string) (Record, error)
	// StateOf returns the records of the mails of one business process, oldest
	// first, at most MaxOfCorrelation of them. None is no error.
	StateOf(ctx context.Context, correlationID string) ([]Record, error)
	// EventsOf returns the steps of those mails in the order of their times, of
	// equal times in the order in which they were written. StepsOf makes it of
	// what StateOf returns.
	EventsOf(ctx context.Context, correlationID string) ([]Step, error)
	// Unknown lists records in StateUnknown, and those in StateReserved whose time
	// has passed, at most limit of them, oldest first.
	Unknown(ctx context.Context, limit int) ([]Record, error)
}

// Errors of a ledger, to be matched by errors.Is.
var (
	// ErrReservationLost: the reservation is no longer the caller's.
	ErrReservationLost = errors.New("the reservation of the mail was lost")
	// ErrNoMail: the ledger has no record of the job.
	ErrNoMail = errors.New("the ledger has no such mail")
	// ErrNotResolvable: the mail is not in a state that can be decided so.
	ErrNotResolvable = errors.New("the mail can't be resolved so in its state")
)

// Defaults and limits of ledgers.
const (
	// DefaultRetention is how long a record is kept after it came to StateSent,
	// StateRefused or StateDiscarded: its ExpireAt. Others are kept until they
	// come to one of those. It must be longer than the queue keeps failed jobs:
	// a job that is made ready again after its record is gone is sent again.
	DefaultRetention = 90 * 24 * time.Hour
	// MaxOfCorrelation bounds what StateOf returns.
	MaxOfCorrelation = 1000
	// MaxDetailBytes bounds Step.Detail; ledgers cut longer ones.
	MaxDetailBytes = 1024
)

// State is where a mail is in its life.
type State string

// The states: queued → reserved → sent, refused, unknown, or queued again. A
// person's decision leads from unknown to sent or queued, and from any but
// reserved to discarded.
const (
	// StateQueued: not sent to all recipients yet, and nobody is sending.
	StateQueued State = "queued"
	// StateReserved: a worker is sending, or died while it was.
	StateReserved State = "reserved"
	// StateSent: accepted for every recipient that was to get it.
	StateSent State = "sent"
	// StateRefused: no further attempt is made by itself: it, or some recipients,
	// were rejected for good or are suppressed. Others may have accepted it.
	StateRefused State = "refused"
	// StateUnknown: it may have been accepted for the recipients that are unknown.
	// A person decides.
	StateUnknown State = "unknown"
	// StateDiscarded: a person decided that it is not sent any more.
	StateDiscarded State = "discarded"
)

// RecipientState is what became of one recipient.
type RecipientState string

// The states of a recipient. Only a pending one is sent to.
const (
	RecipientPending    RecipientState = "pending"
	RecipientAccepted   RecipientState = "accepted"
	RecipientRejected   RecipientState = "rejected"
	RecipientSuppressed RecipientState = "suppressed"
	RecipientUnknown    RecipientState = "unknown"
)

// Recipient is one recipient of a mail and what became of it.
type Recipient struct {
	// Address as in Envelope.Recipients.
	Address string
	State   RecipientState
	// Detail is the server's last answer, or why it is suppressed: a sentence for
	// people, at most MaxDetailBytes.
	Detail string
}

// StepKind names a step of a mail.
type StepKind string

// The steps.
const (
	StepQueued      StepKind = "queued"
	StepAttempt     StepKind = "attempt"
	StepSent        StepKind = "sent"
	StepRefused     StepKind = "refused"
	StepRetry       StepKind = "retry" // this attempt did not get through, another follows
	StepRedelivered StepKind = "redelivered"
	StepUnknown     StepKind = "unknown"
	StepResolved    StepKind = "resolved"
	StepDiscarded   StepKind = "discarded"
	// StepBounced and StepComplained come from a provider, after StepSent.
	StepBounced    StepKind = "bounced"
	StepComplained StepKind = "complained"
)

// Step is one thing that happened to a mail.
type Step struct {
	// ID is unique within the mail: a step is there once by it. It is made by
	// StepID.
	ID   string
	Kind StepKind
	// JobID is the mail's. Ledgers fill it in what they return.
	JobID string
	// At is the ledger's time.
	At time.Time
	// Attempt is the lease's attempt, 0 where there was none.
	Attempt int
	// Hash is that of the bytes, of StepAttempt only.
	Hash string
	// HashChanged: an earlier attempt had other bytes, such as when its template
	// was changed in between (StepAttempt only).
	HashChanged bool
	// Detail is a sentence for people, at most MaxDetailBytes; may be empty.
	Detail string
	// By is the person, of StepResolved and StepDiscarded.
	By string
}

// StepID is the id of a step: the same for the same thing that happened. token
// is the attempt's, or what else tells it from others of its kind; empty for
// StepQueued.
func StepID(kind StepKind, token string) string {
	if token == "" {
		return string(kind)
	}
	return string(kind) + ":" + token
}

// Record is all that the ledger knows of one mail.
type Record struct {
	// JobID is the key: the id of the job as Enqueue's receipt names it, which is
	// also its event's id.
	JobID string
	State State
	// CorrelationID, Tenant and Sink as of the job; may be empty.
	CorrelationID, Tenant, Sink string
	// Template is the template's name, empty for a raw mail.
	Template string
	// Recipients in the order of the envelope; none before the first Reserve.
	Recipients []Recipient
	// Hash is that of the bytes of the last attempt: hex of SHA-256.
	Hash string
	// MessageID is the mail's Message-ID, without angle brackets.
	MessageID string
	// ProviderID is what the transport calls the mail; with several, the last.
	ProviderID string
	// Token and ReservedUntil are the last reservation's. Resolve clears both.
	Token         string
	ReservedUntil time.Time
	Steps         []Step
	CreatedAt     time.Time
	// ExpireAt is when the record is removed; zero for never.
	ExpireAt time.Time
}

// Queued is a mail whose job was just enqueued.
type Queued struct {
	// JobID is the receipt's. Required.
	JobID                                 string
	CorrelationID, Tenant, Sink, Template string
}

// ReserveRequest asks for the right to send a mail.
type ReserveRequest struct {
	// JobID is the mail's. Required.
	JobID string
	// Token names this attempt, unique for ever. Required.
	Token string
	// For is how long the reservation is this worker's; after that another that
	// asks takes it for dead. Required: longer than the send can take.
	For time.Duration
	// Attempt and Redelivered as of the lease.
	Attempt     int
	Redelivered bool
	// Recipients of the whole mail, as in Envelope.Recipients.
	Recipients []string
	// Hash of the bytes, see Record.Hash.
	Hash string
	// MessageID, CorrelationID, Tenant, Sink, Template: see Record.
	MessageID, CorrelationID, Tenant, Sink, Template string
	// TakeUnknown: a mail of unknown outcome is reserved and sent again, see
	// Ledger.Reserve.
	TakeUnknown bool
}

// Verdict is Reserve's answer.
type Verdict uint8

// The verdicts. The zero value is none, so that a forgotten answer is never
// taken for the right to send.
const (
	// VerdictReserved: send to the recipients of the record that are pending, and
	// Finish.
	VerdictReserved Verdict = iota + 1
	// VerdictInFlight: another worker is sending.
	VerdictInFlight
	// VerdictUnknown: an earlier attempt may have been sent.
	VerdictUnknown
	// VerdictDone: it was sent, or discarded. Don't send.
	VerdictDone
)

// Reservation is the answer and the record as it is after it.
type Reservation struct {
	Verdict Verdict
	// Record without its steps, where the implementation saves reading them.
	Record Record
	// RetryIn is how long the other's reservation still holds (VerdictInFlight).
	RetryIn time.Duration
}

// Finish is what became of an attempt.
type Finish struct {
	JobID string
	// Token of the reservation.
	Token string
	// State is the new one: StateSent, StateRefused, StateUnknown, or StateQueued
	// when another attempt follows.
	State State
	// Recipients replaces the record's, all of them.
	Recipients []Recipient
	// ProviderID replaces the record's unless empty.
	ProviderID string
	// Step that is added; its At is the ledger's. Kind StepSent, StepRefused,
	// StepUnknown or StepRetry, and ID StepID(Kind, Token).
	Step Step
}

// Decision is what a person decides about a mail.
type Decision string

// The decisions.
const (
	// DecideSent: a mail of unknown outcome was sent. Its unknown recipients
	// become accepted. The state becomes StateSent; or StateRefused where other
	// recipients are rejected or suppressed; or StateQueued where others are
	// pending. Allowed in StateUnknown, and in StateReserved once the
	// reservation's time has passed. StepResolved.
	DecideSent Decision = "sent"
	// DecideResend: a mail of unknown outcome is sent again. Its unknown (and in
	// StateReserved: pending) recipients become pending and the state StateQueued.
	// Allowed as DecideSent. StepResolved.
	DecideResend Decision = "resend"
	// DecideDiscard: it is not sent any more. StateDiscarded; recipients stay as
	// they are. Allowed in every state but StateSent, and StateReserved before its
	// time has passed. StepDiscarded.
	DecideDiscard Decision = "discard"
)

// Resolution is a person's decision.
type Resolution struct {
	// JobID, Decision and By are required. By is who decided, Why a sentence, the
	// step's Detail.
	JobID    string
	Decision Decision
	By, Why  string
}

// Feedback is what a provider tells of a mail afterwards.
type Feedback struct {
	// ID of the notification: the step's id is StepID(Kind, ID). Required.
	ID string
	// ProviderID as Record.ProviderID. Required.
	ProviderID string
	// Kind is StepBounced or StepComplained.
	Kind StepKind
	// Detail names the recipient and the reason.
	Detail string
}
