package main

import (
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/config"
	kafkasink "github.com/gooutbox/outbox/sink/kafka"
)

// kafkaOptions is a sink of type kafka in a configuration.
type kafkaOptions struct {
	Brokers []string `yaml:"brokers,required"`
	// Topic defaults to what the form is used with.
	Topic string `yaml:"topic"`
	Form  string `yaml:"form" enum:"cloudevents,debezium,bare"`
	// Source replaces the name of the log in the CloudEvents source attribute.
	Source          string          `yaml:"source"`
	Acks            string          `yaml:"acks" enum:"all,leader"`
	Compression     string          `yaml:"compression" enum:"none,gzip,snappy,lz4,zstd"`
	Timeout         config.Duration `yaml:"timeout" min:"100ms"`
	MaxMessageBytes config.Size     `yaml:"max_message_bytes"`
	CreateTopics    bool            `yaml:"create_topics"`
	ClientID        string          `yaml:"client_id"`
	TLS             *tlsOptions     `yaml:"tls"`
	SASL            *saslOptions    `yaml:"sasl"`
}

// saslOptions is who the relay is to the brokers.
type saslOptions struct {
	Mechanism string        `yaml:"mechanism,required" enum:"plain,scram-sha-256,scram-sha-512"`
	Username  string        `yaml:"username,required"`
	Password  config.Secret `yaml:"password,required"`
}

func newKafkaOptions() *kafkaOptions {
	return &kafkaOptions{
		Form:        string(kafkasink.CloudEvents),
		Acks:        string(kafkasink.AcksAll),
		Compression: string(kafkasink.CompressionNone),
		Timeout:     config.Duration(kafkasink.DefaultRequestTimeout),
		ClientID:    kafkasink.DefaultClientID,
	}
}

// kafkaFields tells where the sink's fields stand in a configuration.
var kafkaFields = map[string]string{
	"Form": "form", "Topic": "topic", "Acks": "acks", "Compression": "compression", "SASL": "sasl",
	"RequestTimeout": "timeout", "MaxMessageBytes": "max_message_bytes", "ClientID": "client_id", "Source": "source",
}

// Validate refuses what the sink would refuse.
func (o *kafkaOptions) Validate(report config.Report) {
	for i, b := range o.Brokers {
		host, port, err := net.SplitHostPort(b)
		if n, notNumber := strconv.ParseUint(port, 10, 16); err != nil || host == "" || notNumber != nil || n == 0 {
			report("brokers["+strconv.Itoa(i)+"]", "must be host:port, such as kafka-1.example.com:9092")
		}
	}
	if o.TLS != nil {
		o.TLS.validate("tls", report)
	}
	cfg := o.sink()
	cfg.Brokers = []string{"localhost:9092"} // checked above
	if o.SASL != nil && (o.SASL.Username == "" || o.SASL.Password == "") {
		cfg.SASL = nil // reported as missing
	}
	for _, err := range eachOf(cfg.Validate()) {
		field, problem, _ := strings.Cut(err.Error(), " ")
		report(kafkaFields[field], problem)
	}
}

// eachOf returns the errors that were joined into err.
func eachOf(err error) []error {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}

func (o *kafkaOptions) sink() kafkasink.Config {
	cfg := kafkasink.Config{
		Brokers:         o.Brokers,
		Topic:           o.Topic,
		Form:            kafkasink.Form(o.Form),
		Source:          o.Source,
		Acks:            kafkasink.Acks(o.Acks),
		Compression:     kafkasink.Compression(o.Compression),
		ClientID:        o.ClientID,
		RequestTimeout:  time.Duration(o.Timeout),
		MaxMessageBytes: int(o.MaxMessageBytes),
		CreateTopics:    o.CreateTopics,
	}
	if o.SASL != nil {
		cfg.SASL = &kafkasink.SASL{
			Mechanism: kafkasink.Mechanism(o.SASL.Mechanism),
			Username:  o.SASL.Username,
			Password:  o.SASL.Password.Reveal(),
		}
	}
	return cfg
}

func (o *kafkaOptions) open(parts) (core.Sink, error) {
	cfg := o.sink()
	var err error
	if cfg.TLS, err = o.TLS.config(); err != nil {
		return nil, err
	}
	return kafkasink.New(cfg)
}
