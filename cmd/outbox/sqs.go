package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/config"
	sqssink "github.com/gooutbox/outbox/sink/sqs"
)

// sqsOptions is a sink of type sqs in a configuration. Credentials, and what is
// left out here, come from where every AWS program takes them: the environment,
// the shared files, the machine's role.
type sqsOptions struct {
	Queue string `yaml:"queue,required"`
	FIFO  bool   `yaml:"fifo"`
	Form  string `yaml:"form" enum:"cloudevents,debezium,bare"`
	// Source replaces the name of the log in the CloudEvents source attribute.
	Source      string          `yaml:"source"`
	Binary      string          `yaml:"binary" enum:"base64,reject"`
	Timeout     config.Duration `yaml:"timeout" min:"100ms"`
	Concurrency int             `yaml:"concurrency" min:"1"`
	Region      string          `yaml:"region"`
	Profile     string          `yaml:"profile"`
	Endpoint    string          `yaml:"endpoint"`
}

func newSQSOptions() *sqsOptions {
	return &sqsOptions{
		Form:        string(sqssink.CloudEvents),
		Binary:      string(sqssink.BinaryBase64),
		Timeout:     config.Duration(sqssink.DefaultRequestTimeout),
		Concurrency: sqssink.DefaultConcurrency,
	}
}

// sqsFields tells where the sink's fields stand in a configuration.
var sqsFields = map[string]string{
	"Queue": "queue", "Form": "form", "Binary": "binary", "RequestTimeout": "timeout", "Concurrency": "concurrency",
}

// Validate refuses what the sink would refuse.
func (o *sqsOptions) Validate(report config.Report) {
	if u, err := url.Parse(o.Endpoint); o.Endpoint != "" && (err != nil || u.Host == "" || u.User != nil || u.Scheme != "http" && u.Scheme != "https") {
		report("endpoint", "must be a URL such as http://127.0.0.1:4566, without a user")
	}
	cfg := o.sink()
	if cfg.Queue == "" {
		cfg.Queue = "missing.fifo" // reported as missing
	}
	for _, err := range eachOf(cfg.Validate()) {
		field, problem, _ := strings.Cut(err.Error(), " ")
		report(sqsFields[field], problem)
	}
}

func (o *sqsOptions) sink() sqssink.Config {
	return sqssink.Config{
		Queue:          o.Queue,
		FIFO:           o.FIFO,
		Form:           sqssink.Form(o.Form),
		Source:         o.Source,
		Binary:         sqssink.Binary(o.Binary),
		RequestTimeout: time.Duration(o.Timeout),
		Concurrency:    o.Concurrency,
	}
}

// awsTimeout bounds the look for region and credentials at the start.
const awsTimeout = 10 * time.Second

// errNoRegion is an AWS configuration that no request can be made with.
var errNoRegion = errors.New("the AWS region isn't known: set region here, or AWS_REGION, or a profile that has one")

func (o *sqsOptions) open(parts) (core.Sink, error) {
	ctx, cancel := withTimeout(context.Background(), awsTimeout)
	defer cancel()
	var options []func(*awsconfig.LoadOptions) error
	if o.Region != "" {
		options = append(options, awsconfig.WithRegion(o.Region))
	}
	if o.Profile != "" {
		options = append(options, awsconfig.WithSharedConfigProfile(o.Profile))
	}
	found, err := awsconfig.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("loading the AWS configuration: %w", err)
	}
	if found.Region == "" {
		return nil, errNoRegion
	}
	if o.Endpoint != "" {
		found.BaseEndpoint = aws.String(o.Endpoint)
	}
	return sqssink.New(found, o.sink())
}
