package sqs

import (
	"maps"
	"slices"
	"testing"
	"time"

	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/services"
	"github.com/gooutbox/outbox/internal/servicetest"
	"github.com/gooutbox/outbox/sink/sinktest"
)

// The suite runs on an emulator of its own, which it freezes and kills.
func TestConformance(t *testing.T) {
	emulator := servicetest.StartAWS(t, services.AWSConfig{})
	direct := awssqs.NewFromConfig(awsConfig(emulator.Endpoint()))
	for name, fifo := range map[string]bool{"Standard": false, "FIFO": true} {
		t.Run(name, func(t *testing.T) {
			sinktest.Run(t, sinktest.Harness{New: func(t testing.TB) sinktest.Destination {
				queue := queueName(t, fifo)
				url := createQueue(t, direct, queue, map[string]string{"MaximumMessageSize": "65536"})
				var all []sinktest.Message
				return sinktest.Destination{
					Open: func(t testing.TB) core.Sink {
						s, err := New(awsConfig(emulator.Endpoint()), Config{RequestTimeout: time.Minute, Queue: "{{ with .Tenant }}{{ . }}{{ else }}" + queue + "{{ end }}"})
						if err != nil {
							t.Fatal(err)
						}
						return s
					},
					Received: func(t testing.TB) []sinktest.Message {
						for _, m := range drain(t, direct, url) {
							all = append(all, sinktest.Message{ID: m.headers["ce_id"], Key: m.headers["ce_partitionkey"], Payload: m.payload})
						}
						return slices.Clone(all)
					},
					TooLarge: 70_000,
					Spoil: []func(*core.Event){
						func(e *core.Event) { e.Headers["ce_x"] = "1" },
						func(e *core.Event) { e.ID = "" },
						func(e *core.Event) { e.Tenant = "no queue!" },
						func(e *core.Event) { e.Tenant = "missing-" + servicetest.Name(t) },
						func(e *core.Event) { e.Payload = make([]byte, 2*maxBatchBytes) },
						func(e *core.Event) {
							e.Headers = maps.Clone(e.Headers)
							e.Headers["x"] = "\xff"
						},
					},
					Cut: func(t testing.TB) func() {
						emulator.Kill()
						return func() { // it has lost everything
							if err := emulator.Start(t.Context()); err != nil {
								t.Fatal(err)
							}
							createQueue(t, direct, queue, map[string]string{"MaximumMessageSize": "65536"})
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
		})
	}
}
