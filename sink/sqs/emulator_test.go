package sqs

import (
	"context"
	"fmt"
	"reflect"
	"testing"

	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
)

// What a consumer gets, over the real protocol.
func TestAConsumerGetsWhatTheEventSays(t *testing.T) {
	t.Parallel()
	endpoint := servicetest.AWSEndpoint(t)
	client := awssqs.NewFromConfig(awsConfig(endpoint))
	for _, fifo := range []bool{false, true} {
		queue := queueName(t, fifo)
		url := createQueue(t, client, queue, nil)
		sink := newSink(t, endpoint, Config{Queue: queue})
		if err := sink.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		l := event("id 1", "order 1", `{"total":42}`)
		l.Event.Aggregate, l.Event.Headers = "order", map[string]string{"traceparent": "00-1-2-01", "X!": ""}
		if r := sink.Deliver(t.Context(), []core.Lease{l})[0]; r.Outcome != core.Delivered || r.Receipt == "" {
			t.Fatalf("%v (%v), receipt %q", r.Outcome, r.Err, r.Receipt)
		}
		got := drain(t, client, url)
		if len(got) != 1 {
			t.Fatalf("%d messages", len(got))
		}
		want := map[string]string{
			"ce_specversion": "1.0", "ce_id": "id 1", "ce_source": "/outbox/shop/outbox", "ce_type": "order.placed",
			"ce_subject": "order 1", "ce_partitionkey": "order 1", "ce_outboxaggregate": "order", "ce_outboxroute": "sqs",
			"ce_outboxfence": "0000000000000007", "content-type": "application/json", "traceparent": "00-1-2-01", "X!": "",
		}
		if !reflect.DeepEqual(got[0].headers, want) || got[0].body != `{"total":42}` {
			t.Errorf("%q of %q\nwant %q", got[0].headers, got[0].body, want)
		}
		if group := map[bool]string{true: identifier("order 1")}[fifo]; got[0].group != group {
			t.Errorf("group %q, want %q", got[0].group, group)
		}
	}
}

func TestAFIFOQueueDropsRepeatsAndKeepsTheOrder(t *testing.T) {
	t.Parallel()
	endpoint := servicetest.AWSEndpoint(t)
	client := awssqs.NewFromConfig(awsConfig(endpoint))
	queue := queueName(t, true)
	url := createQueue(t, client, queue, nil)
	sink := newSink(t, endpoint, Config{Queue: queue})
	var leases []core.Lease
	want := map[string][]string{}
	for i := range 40 {
		key := fmt.Sprintf("key %d", i%7)
		leases = append(leases, event(fmt.Sprintf("id-%02d", i), key, "{}"))
		want[identifier(key)] = append(want[identifier(key)], leases[i].Event.ID)
	}
	for range 2 { // as after a crash
		for i, r := range sink.Deliver(context.Background(), leases) {
			if r.Outcome != core.Delivered {
				t.Fatalf("event %d: %v (%v)", i, r.Outcome, r.Err)
			}
		}
	}
	got := map[string][]string{}
	for _, m := range drain(t, client, url) {
		got[m.group] = append(got[m.group], m.headers["ce_id"])
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}
