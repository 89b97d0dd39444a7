package sqs

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/services"
	"github.com/gooutbox/outbox/internal/servicetest"
	"github.com/gooutbox/outbox/sink/sinktest"
)

// The suite runs on an emulator of its own, which it freezes and kills. The
// emulator takes longer with each message that a queue holds, so that the
// standard queue, about which it knows no more, has its turn in long runs only.
func TestConformance(t *testing.T) {
	emulator := servicetest.StartAWS(t, services.AWSConfig{})
	t.Run("FIFO", func(t *testing.T) { conform(t, emulator, true) })
	if os.Getenv("OUTBOX_SOAK") != "" {
		t.Run("Standard", func(t *testing.T) { conform(t, emulator, false) })
	}
}

func conform(t *testing.T, emulator *services.AWS, fifo bool) {
	t.Helper()
	client := awssqs.NewFromConfig(awsConfig(emulator.Endpoint()))
	limit := map[string]string{"MaximumMessageSize": "65536"}
	sinktest.Run(t, sinktest.Harness{New: func(t testing.TB) sinktest.Destination {
		queue := queueName(t, fifo)
		urls := []string{createQueue(t, client, queue, maps.Clone(limit))}
		var all []received
		return sinktest.Destination{
			Open: func(t testing.TB) core.Sink {
				s, err := New(awsConfig(emulator.Endpoint()), Config{
					Queue: "{{ with .Tenant }}{{ . }}{{ else }}" + queue + "{{ end }}", RequestTimeout: time.Minute,
				})
				if err != nil {
					t.Fatal(err)
				}
				return s
			},
			Received: func(t testing.TB) []sinktest.Message {
				for _, url := range urls {
					all = append(all, drain(t, client, url)...)
				}
				slices.SortStableFunc(all, func(a, b received) int { return strings.Compare(a.sent, b.sent) })
				var messages []sinktest.Message
				for _, m := range all {
					messages = append(messages, sinktest.Message{ID: m.headers["ce_id"], Key: m.headers["ce_partitionkey"], Payload: m.payload})
				}
				return messages
			},
			Unordered: !fifo,
			TooLarge:  70_000,
			Reject:    rejected(),
			Spoil:     append(rejected(), func(e *core.Event) { e.Tenant = "missing" }),
			Refuse: func(t testing.TB) (func(*core.Event), func()) {
				other := queueName(t, fifo) // doesn't exist yet
				return func(e *core.Event) { e.Tenant = other }, func() { urls = append(urls, createQueue(t, client, other, nil)) }
			},
			Cut: func(t testing.TB) func() {
				emulator.Kill()
				return func() { // it has lost everything
					if err := emulator.Start(t.Context()); err != nil {
						t.Fatal(err)
					}
					createQueue(t, client, queue, maps.Clone(limit))
				}
			},
			Freeze: func(t testing.TB) func() {
				if err := emulator.Pause(); err != nil {
					t.Fatal(err)
				}
				return func() {
					if err := emulator.Resume(); err != nil {
						t.Fatal(err)
					}
				}
			},
		}
	}})
}
