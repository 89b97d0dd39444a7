package mail

import (
	"context"
	"strings"
	"time"
)

// Suppressions is asked before each send which recipients must not be sent to.
type Suppressions interface {
	// Suppressed returns an entry for each of the addresses that is suppressed,
	// under the address as it was given. Addresses are those of an envelope; they
	// are compared by SuppressionKey. An error means that it isn't known: the mail
	// then waits. Several goroutines may call at once, and an implementation may
	// gather what waits at the same time into one query.
	Suppressed(ctx context.Context, addresses []string) (map[string]Suppression, error)
}

// SuppressionList is a list that is kept. Its methods may be called by several
// goroutines at once.
type SuppressionList interface {
	Suppressions
	// Add puts addresses on the list. One that is there already keeps its Since,
	// and gets the new reason, detail and the later end.
	Add(ctx context.Context, entries ...Suppression) error
	// Remove takes an address off the list and tells whether it was on it.
	Remove(ctx context.Context, address string) (bool, error)
}

// SuppressionReason says why an address is suppressed.
type SuppressionReason string

// The reasons. A list takes others too.
const (
	// SuppressBounce: the address bounced for good.
	SuppressBounce SuppressionReason = "bounce"
	// SuppressComplaint: its reader called a mail unwanted.
	SuppressComplaint SuppressionReason = "complaint"
	// SuppressUnsubscribe: its reader asked for no more.
	SuppressUnsubscribe SuppressionReason = "unsubscribe"
	// SuppressManual: an operator put it there.
	SuppressManual SuppressionReason = "manual"
)

// Suppression is one suppressed address.
type Suppression struct {
	// Address as local@domain. Required.
	Address string
	// Reason is required.
	Reason SuppressionReason
	// Detail is a sentence for people, such as the receiving server's answer. At
	// most MaxDetailBytes; may be empty.
	Detail string
	// Since is when it was added, by the list's clock, in what Suppressed returns.
	Since time.Time
	// Until is when it ends; zero for never. Suppressed leaves out ended ones.
	Until time.Time
}

// SuppressionKey is the form in which addresses are compared: lower case, and
// without the space around it. RFC 5321 lets local parts differ by case; servers
// that do so are unknown, and sending to a suppressed address costs more than
// leaving out its twin.
func SuppressionKey(address string) string {
	return strings.ToLower(strings.TrimSpace(address))
}
