package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/template"
	"time"

	"github.com/gooutbox/outbox/core"
	kafkasink "github.com/gooutbox/outbox/sink/kafka"
)

// maxSampleTopics bounds the topics that a check asks for.
const maxSampleTopics = 20

// checkSample looks whether the topics of the events are there, where nobody
// would create them.
func (o *kafkaOptions) checkSample(ctx context.Context, sink string, sample []core.Lease, sampleErr error, timeout time.Duration, found *findings) {
	label := "topics of " + sink
	text := o.topicTemplate()
	if o.CreateTopics || !strings.Contains(text, "{{") {
		return
	}
	const why = "topic is a template and create_topics is false"
	if sampleErr != nil {
		found.warn(label, why+": the topics can't be checked: "+reasonOf(sampleErr), "")
		return
	}
	names := topicsOf(text, sample)
	if len(names) == 0 {
		found.warn(label, why+": the topics can't be checked before the log has events", createAdvice)
		return
	}
	ctx, cancel := withTimeout(ctx, timeout)
	defer cancel()
	var missing []string
	for _, name := range names {
		if err := o.checkTopic(ctx, name); err == nil {
			continue
		} else if !strings.Contains(err.Error(), "doesn't exist") {
			found.warn(label, fmt.Sprintf("the topic %s, of an event in the log: %s", name, because(ctx, err)), "")
			return
		}
		missing = append(missing, name)
	}
	switch {
	case len(missing) == 0:
		found.ok(label, "all topics of the newest events are there")
	case len(missing) == 1:
		found.warn(label, why+": the topic "+missing[0]+", of an event in the log, doesn't exist", createAdvice)
	default:
		found.warn(label, why+": the topics "+strings.Join(missing, ", ")+", of events in the log, don't exist", createAdvice)
	}
}

const createAdvice = "create the topics, or set create_topics: true. An event whose topic is missing is parked and fails after max_attempts; " +
	"its key then goes on, unless the route has on_failure: hold"

// topicTemplate is the template with the sink's default in the place of none.
func (o *kafkaOptions) topicTemplate() string {
	switch {
	case o.Topic != "":
		return o.Topic
	case kafkasink.Form(o.Form) == kafkasink.Debezium:
		return kafkasink.DefaultDebeziumTopic
	}
	return kafkasink.DefaultTopic
}

// topicsOf returns the first few topics that the template makes. Events that
// have none are left to the relay.
func topicsOf(text string, sample []core.Lease) []string {
	tmpl, err := template.New("topic").Funcs(template.FuncMap{"required": func(field, value string) (string, error) {
		if value == "" {
			return "", errors.New(field + " is empty")
		}
		return value, nil
	}}).Parse(text)
	if err != nil {
		return nil // refused by Validate
	}
	var names []string
	seen := map[string]bool{}
	for i := range sample {
		l := &sample[i]
		var b strings.Builder
		err := tmpl.Execute(&b, struct {
			Type, Aggregate, Tenant string
			Version                 int
			Route                   string
		}{l.Event.Type, l.Event.Aggregate, l.Event.Tenant, l.Event.Version, l.Route})
		if err != nil || b.Len() == 0 || seen[b.String()] || len(names) == maxSampleTopics {
			continue
		}
		seen[b.String()] = true
		names = append(names, b.String())
	}
	return names
}

// checkTopic asks for one topic.
func (o *kafkaOptions) checkTopic(ctx context.Context, name string) error {
	fixed := *o
	fixed.Topic = name
	sink, err := fixed.open(parts{})
	if err != nil {
		return err
	}
	defer func() { _ = sink.Close(ctx) }()
	return sink.(core.Checker).Check(ctx)
}
