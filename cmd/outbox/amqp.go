package main

import (
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/config"
	amqpsink "github.com/gooutbox/outbox/sink/amqp"
)

// amqpOptions is a sink of type amqp in a configuration.
type amqpOptions struct {
	URLs       []config.URI `yaml:"urls,required"`
	Exchange   string       `yaml:"exchange"`
	RoutingKey string       `yaml:"routing_key"`
	Form       string       `yaml:"form" enum:"cloudevents,bare"`
	// Source replaces the name of the log in the CloudEvents source attribute.
	Source          string          `yaml:"source"`
	Persistent      bool            `yaml:"persistent"`
	External        bool            `yaml:"external"`
	ConnectionName  string          `yaml:"connection_name"`
	Heartbeat       config.Duration `yaml:"heartbeat" min:"1s"`
	Timeout         config.Duration `yaml:"timeout" min:"100ms"`
	MaxMessageBytes config.Size     `yaml:"max_message_bytes"`
	TLS             *tlsOptions     `yaml:"tls"`
	Topology        amqpTopology    `yaml:"topology"`
}

// amqpTopology is what the sink declares.
type amqpTopology struct {
	Exchanges []amqpExchange `yaml:"exchanges"`
	Queues    []amqpQueue    `yaml:"queues"`
	Bindings  []amqpBinding  `yaml:"bindings"`
}

type amqpExchange struct {
	Name      string                  `yaml:"name,required"`
	Type      string                  `yaml:"type"`
	Arguments map[string]amqpArgument `yaml:"arguments"`
}

type amqpQueue struct {
	Name      string                  `yaml:"name,required"`
	Arguments map[string]amqpArgument `yaml:"arguments"`
}

type amqpBinding struct {
	Exchange   string                  `yaml:"exchange,required"`
	Queue      string                  `yaml:"queue"`
	ToExchange string                  `yaml:"to_exchange"`
	RoutingKey string                  `yaml:"routing_key"`
	Arguments  map[string]amqpArgument `yaml:"arguments"`
}

// amqpArgument is a whole number, true or false, else a text.
type amqpArgument string

func (a amqpArgument) value() any {
	if n, err := strconv.ParseInt(string(a), 10, 64); err == nil {
		return n
	}
	if a == "true" || a == "false" {
		return a == "true"
	}
	return string(a)
}

func newAMQPOptions() *amqpOptions {
	return &amqpOptions{
		RoutingKey:     amqpsink.DefaultRoutingKey,
		Form:           string(amqpsink.CloudEvents),
		Persistent:     true,
		ConnectionName: amqpsink.DefaultConnectionName,
		Heartbeat:      config.Duration(amqpsink.DefaultHeartbeat),
		Timeout:        config.Duration(amqpsink.DefaultTimeout),
	}
}

// amqpFields tells where the sink's fields stand in a configuration.
var amqpFields = map[string]string{
	"URLs": "urls", "Exchange": "exchange", "RoutingKey": "routing_key", "Form": "form", "External": "external",
	"ConnectionName": "connection_name", "Heartbeat": "heartbeat", "Timeout": "timeout",
	"MaxMessageBytes": "max_message_bytes", "Topology": "topology",
}

// Validate refuses what the sink would refuse.
func (o *amqpOptions) Validate(report config.Report) {
	encrypted := len(o.URLs) == 0
	for i, u := range o.URLs {
		encrypted = encrypted || strings.HasPrefix(u.Reveal(), "amqps://")
		if unescaped(u.Reveal()) {
			report("urls["+strconv.Itoa(i)+"]", mustBeEscaped)
			return
		}
	}
	if o.TLS != nil {
		o.TLS.validate("tls", report)
		if !encrypted {
			report("tls", "needs an address that begins with amqps://")
		}
	}
	cfg := o.sink()
	if len(o.URLs) == 0 {
		cfg.URLs = []string{"amqps://localhost"} // reported as missing
	}
	for _, err := range eachOf(cfg.Validate()) {
		field, problem, _ := strings.Cut(err.Error(), " ")
		at := amqpFields[field]
		if m := amqpEntry.FindStringSubmatch(problem); m != nil {
			n, _ := strconv.Atoi(m[1]) // digits
			at, problem = at+"["+strconv.Itoa(n-1)+"]", m[2]
		}
		report(at, problem)
	}
}

// amqpEntry is how the sink names one of its addresses, counted from 1.
var amqpEntry = regexp.MustCompile(`^entry ([0-9]+) (.*)`)

func (o *amqpOptions) sink() amqpsink.Config {
	cfg := amqpsink.Config{
		Exchange:        o.Exchange,
		RoutingKey:      o.RoutingKey,
		Form:            amqpsink.Form(o.Form),
		Source:          o.Source,
		Transient:       !o.Persistent,
		External:        o.External,
		ConnectionName:  o.ConnectionName,
		Heartbeat:       time.Duration(o.Heartbeat),
		Timeout:         time.Duration(o.Timeout),
		MaxMessageBytes: int(o.MaxMessageBytes),
		Topology:        o.Topology.sink(),
	}
	for _, u := range o.URLs {
		cfg.URLs = append(cfg.URLs, u.Reveal())
	}
	return cfg
}

func (t amqpTopology) sink() amqpsink.Topology {
	var made amqpsink.Topology
	for _, e := range t.Exchanges {
		made.Exchanges = append(made.Exchanges, amqpsink.Exchange{Name: e.Name, Type: e.Type, Arguments: amqpArguments(e.Arguments)})
	}
	for _, q := range t.Queues {
		made.Queues = append(made.Queues, amqpsink.Queue{Name: q.Name, Arguments: amqpArguments(q.Arguments)})
	}
	for _, b := range t.Bindings {
		made.Bindings = append(made.Bindings, amqpsink.Binding{
			Exchange: b.Exchange, Queue: b.Queue, ToExchange: b.ToExchange, RoutingKey: b.RoutingKey, Arguments: amqpArguments(b.Arguments),
		})
	}
	return made
}

func amqpArguments(given map[string]amqpArgument) map[string]any {
	made := make(map[string]any, len(given))
	for name, a := range given {
		made[name] = a.value()
	}
	return made
}

func (o *amqpOptions) open(parts) (core.Sink, error) {
	cfg := o.sink()
	var err error
	if cfg.TLS, err = o.TLS.config(); err != nil {
		return nil, err
	}
	return amqpsink.New(cfg)
}
