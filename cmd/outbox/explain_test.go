package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/gooutbox/outbox/core"
)

func order(id, key string) core.Event {
	return core.Event{ID: id, Aggregate: "order", AggregateID: key, Type: "order.placed", Payload: []byte("{}")}
}

// TestExplain has one case for each cause that the contract names.
func TestExplain(t *testing.T) {
	t.Parallel()
	for cause, prepare := range map[string]func(o *operated) (id string){
		core.CauseDelivered: func(o *operated) string {
			id := o.enqueue(mail("a"))[0]
			o.settle(core.Settlement{Kind: core.Complete, Receipt: "ses 0100018d"})
			return id
		},
		core.CausePredecessor: func(o *operated) string {
			o.append(order("e-1", "order-7"), order("e-2", "order-7"))
			c := o.acquire()
			entries := o.read(c, 2)
			park := []core.Parked{
				{Entry: entries[0], Sink: "events", Failure: core.Failure{Code: core.CodeRejected, Reason: "the message is too large"}, Holds: true, Attempts: 1},
				{Entry: entries[1], Sink: "events", Failure: core.Failure{Code: core.CodeRejected, Reason: "the topic is gone"}, Attempts: 1},
			}
			if err := c.Park(o.t.Context(), park); err != nil {
				o.t.Fatal(err)
			}
			if n, err := o.Retry(o.t.Context(), core.JobFilter{IDs: []string{"kafka/e-2"}}, core.Act{By: "jo"}); n != 1 || err != nil {
				o.t.Fatal(n, err)
			}
			return "e-2"
		},
		core.CausePaused: func(o *operated) string {
			pause := core.Pause{PauseTarget: core.PauseTarget{Scope: core.PauseTenant, Name: "acme"}, For: time.Hour, Reason: "unpaid"}
			if err := o.PauseBy(o.t.Context(), pause, core.Act{By: "jo"}); err != nil {
				o.t.Fatal(err)
			}
			return o.enqueue(mail("a"))[0]
		},
		core.CauseLeased: func(o *operated) string {
			id := o.enqueue(mail("a"))[0]
			o.claim()
			return id
		},
		core.CauseBackoff: func(o *operated) string {
			id := o.enqueue(mail("a"))[0]
			o.settle(core.Settlement{Kind: core.Retry, Delay: time.Hour, Failure: core.Failure{Code: "refused", Reason: "452 mailbox full"}})
			return id
		},
		core.CauseDelayed: func(o *operated) string {
			job := mail("a")
			job.NotBefore = time.Now().Add(time.Hour)
			return o.enqueue(job)[0]
		},
		core.CauseFailed: func(o *operated) string {
			o.enqueue(mail("a"))
			o.settle(rejected)
			return "a"
		},
		core.CauseUnknown: func(o *operated) string {
			id := o.enqueue(mail("a"))[0]
			o.settle(core.Settlement{Kind: core.EndUnknown, Failure: core.Failure{Code: core.CodeUnknown, Reason: "the connection broke after DATA"}})
			return id
		},
		core.CauseCursorStopped: func(o *operated) string {
			c := o.acquire()
			o.append(order("e-1", "order-7"))
			if err := c.Release(o.t.Context()); err != nil {
				o.t.Fatal(err)
			}
			return "e-1"
		},
		core.CauseBehind: func(o *operated) string {
			o.acquire()
			o.append(order("e-1", "order-7"))
			return "e-1"
		},
		core.CauseDue: func(o *operated) string { return o.enqueue(mail("a"))[0] },
	} {
		t.Run(cause, func(t *testing.T) {
			t.Parallel()
			o := newOperated(t)
			id := prepare(o)
			tr := &transcript{o: o}
			tr.run("explain", id)
			tr.golden(fmt.Sprintf("explain-%s.txt", cause))

			var e explanationJSON
			if o.script(&e, "explain", id); e.ID != id || len(e.Causes) == 0 || e.Causes[0].Code != cause || e.Causes[0].Text == "" {
				t.Errorf("for scripts: %+v", e)
			}
		})
	}
}

func TestExplainNothing(t *testing.T) {
	t.Parallel()
	tr := &transcript{o: newOperated(t)}
	tr.run("explain", "nobody")
	tr.run("explain", "a", "b")
	tr.golden("explain.txt")
}
