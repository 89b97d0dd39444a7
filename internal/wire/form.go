package wire

import "fmt"

// Form is the shape in which an event travels. The zero value is CloudEvents.
type Form string

// The forms.
const (
	// CloudEvents is the binary content mode of CloudEvents 1.0: each
	// attribute is a header, the payload is the body.
	CloudEvents Form = "cloudevents"
	// Debezium is what Debezium's outbox event router emits: the event's id in
	// a header, the payload as the body.
	Debezium Form = "debezium"
	// Bare is the payload with the event's own headers and a few more.
	Bare Form = "bare"
)

// OrDefault is f, or CloudEvents for the zero value.
func (f Form) OrDefault() Form {
	if f == "" {
		return CloudEvents
	}
	return f
}

// Validate tells whether f is one of the forms or the zero value.
func (f Form) Validate() error {
	switch f.OrDefault() {
	case CloudEvents, Debezium, Bare:
		return nil
	}
	return fmt.Errorf("unknown form %q: use %s, %s or %s", string(f), CloudEvents, Debezium, Bare)
}
