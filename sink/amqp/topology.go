package amqp

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/rabbitmq/amqp091-go"
)

// Topology lists what is declared on a channel of its own whenever a connection
// was made. What exists already with the same settings stays as it is; what
// exists with others is an error, which Check returns and which makes every
// event unavailable until the settings agree. What is deleted while the
// connection lasts is not made again.
type Topology struct {
	Exchanges []Exchange
	Queues    []Queue
	Bindings  []Binding
}

// Exchange is declared as durable.
type Exchange struct {
	Name string
	// Type is topic, direct, fanout, headers, or one that a plugin brings.
	// Defaults to topic.
	Type string
	// Arguments such as alternate-exchange: texts, numbers and booleans.
	Arguments map[string]any
}

// Queue is declared as durable.
type Queue struct {
	Name string
	// Arguments such as x-queue-type or x-max-length: texts, numbers and
	// booleans.
	Arguments map[string]any
}

// Binding brings messages of an exchange to a queue, or to another exchange.
type Binding struct {
	Exchange string
	// Queue or ToExchange is where they go: exactly one.
	Queue, ToExchange string
	// RoutingKey is the pattern. Defaults to "", which a fanout ignores.
	RoutingKey string
	Arguments  map[string]any
}

func (t Topology) empty() bool {
	return len(t.Exchanges)+len(t.Queues)+len(t.Bindings) == 0
}

// problems lists what keeps t from being declared.
func (t Topology) problems() []string {
	var all []string
	check := func(what, name string, arguments map[string]any) {
		if err := validName(name); err != nil {
			all = append(all, fmt.Sprintf("has %s whose name %v", what, err))
		}
		for _, key := range slices.Sorted(maps.Keys(arguments)) {
			if _, err := argument(arguments[key]); err != nil || key == "" || len(key) > maxShort {
				all = append(all, fmt.Sprintf("has %s %q whose argument %q is neither text, number nor boolean", what, name, key))
			}
		}
	}
	for _, e := range t.Exchanges {
		check("an exchange", e.Name, e.Arguments)
	}
	for _, q := range t.Queues {
		check("a queue", q.Name, q.Arguments)
	}
	for _, b := range t.Bindings {
		check("a binding of an exchange", b.Exchange, b.Arguments)
		if (b.Queue == "") == (b.ToExchange == "") {
			all = append(all, fmt.Sprintf("has a binding of exchange %q that names not exactly one of queue and exchange to bring messages to", b.Exchange))
		}
		if len(b.RoutingKey) > maxShort {
			all = append(all, fmt.Sprintf("has a binding of exchange %q whose routing key has more than %d bytes", b.Exchange, maxShort))
		}
	}
	return all
}

// argument makes a value that AMQP can carry.
func argument(v any) (any, error) {
	switch v := v.(type) {
	case string, bool, int64, int32, float64:
		return v, nil
	case int:
		return int64(v), nil
	case uint64:
		return int64(v), nil //nolint:gosec // no such argument is that large
	}
	return nil, errors.New("not text, number or boolean")
}

func table(arguments map[string]any) amqp091.Table {
	if len(arguments) == 0 {
		return nil
	}
	made := make(amqp091.Table, len(arguments))
	for key, v := range arguments {
		made[key], _ = argument(v) // checked by problems
	}
	return made
}

// declare makes what is missing. The channel is of no use after an error.
func (t Topology) declare(ch *amqp091.Channel) error {
	for _, e := range t.Exchanges {
		kind := e.Type
		if kind == "" {
			kind = amqp091.ExchangeTopic
		}
		if err := ch.ExchangeDeclare(e.Name, kind, true, false, false, false, table(e.Arguments)); err != nil {
			return declaring("exchange", e.Name, err)
		}
	}
	for _, q := range t.Queues {
		if _, err := ch.QueueDeclare(q.Name, true, false, false, false, table(q.Arguments)); err != nil {
			return declaring("queue", q.Name, err)
		}
	}
	for _, b := range t.Bindings {
		var err error
		if b.Queue != "" {
			err = ch.QueueBind(b.Queue, b.RoutingKey, b.Exchange, false, table(b.Arguments))
		} else {
			err = ch.ExchangeBind(b.ToExchange, b.RoutingKey, b.Exchange, false, table(b.Arguments))
		}
		if err != nil {
			return declaring("the binding of exchange", b.Exchange, err)
		}
	}
	return nil
}

func declaring(what, name string, err error) error {
	hint := ""
	if refusal, ok := errors.AsType[*amqp091.Error](err); ok {
		switch refusal.Code {
		case amqp091.PreconditionFailed:
			hint = "it exists with other settings: change the configuration to these, or delete it: "
		case amqp091.AccessRefused:
			hint = "the user may not: grant it the right to configure, or leave it out of the configuration: "
		case amqp091.NotFound:
			hint = "what it refers to doesn't exist: "
		}
	}
	return fmt.Errorf("declaring %s %q: %s%w", what, name, hint, err)
}
