package amqp

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/naming"
)

// maxShort is how long AMQP's short strings may be: names of exchanges, routing
// keys, header names and all properties that are texts.
const maxShort = 255

func newRoutingKeys(text string) (*naming.Template, error) {
	return naming.Parse(text, naming.Spec{
		What: "routing key", Owner: "routing key", Field: "RoutingKey", Most: maxShort, AggregateID: true, Valid: madeName,
	})
}

// exchanges names the exchange of each event. The default exchange, which has no
// name, is all events' or none's: no template makes it.
type exchanges struct{ *naming.Template }

func newExchanges(text string) (exchanges, error) {
	if text == "" {
		return exchanges{}, nil
	}
	t, err := naming.Parse(text, naming.Spec{
		What: "exchange", Owner: "exchange", Field: "Exchange", Most: maxShort, AggregateID: true, Valid: madeName,
	})
	return exchanges{t}, err
}

// of returns the event's exchange, or a *core.FieldError.
func (e exchanges) of(l *core.Lease) (string, error) {
	if e.Template == nil {
		return "", nil
	}
	return e.Of(l)
}

// fixed is the exchange if it is the same for all events.
func (e exchanges) fixed() (name string, ok bool) {
	if e.Template == nil {
		return "", true
	}
	return e.Fixed(), e.Fixed() != ""
}

// madeName is validName of what a template made.
func madeName(text string) error {
	if err := validName(text); err != nil {
		return fmt.Errorf("it %w", err)
	}
	return nil
}

func validName(text string) error {
	switch {
	case text == "":
		return errors.New("is empty")
	case len(text) > maxShort:
		return fmt.Errorf("has more than the %d bytes that AMQP allows", maxShort)
	case hasControl(text) || !utf8.ValidString(text):
		return errors.New("contains a control character or is not valid UTF-8")
	}
	return nil
}

func hasControl(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool { return r < 0x20 || r == 0x7f })
}
