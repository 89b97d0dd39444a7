package mongo

import (
	"fmt"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
)

// A program in another language may know not_before alone. Its job does not go out
// before that, by whichever way it is claimed.
func TestClaimsHonourNotBeforeWithoutAvailableAt(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{})
	for name, req := range map[string]core.ClaimRequest{
		"one":     {Max: 1},
		"several": {Max: 10},
		"spread":  {Max: 10, Spread: 1},
		"tenants": {Max: 10, Tenants: []string{"", "acme"}},
	} {
		t.Run(name, func(t *testing.T) {
			sink := "mail-" + name
			foreign := func(id string, more ...bson.E) {
				doc := append(bson.D{
					{Key: "_id", Value: name + "-" + id},
					{Key: "sink", Value: sink},
					{Key: "state", Value: "ready"},
					{Key: "rank", Value: 1},
					{Key: "seq", Value: bson.Timestamp{}},
					{Key: "event_type", Value: "t"},
					{Key: "payload", Value: "x"},
				}, more...)
				if _, err := s.jobs.InsertOne(t.Context(), doc); err != nil {
					t.Fatal(err)
				}
			}
			in := time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
			foreign("later", bson.E{Key: "not_before", Value: in})
			foreign("epoch", bson.E{Key: "not_before", Value: in}, bson.E{Key: "available_at", Value: bson.DateTime(0)})
			foreign("past", bson.E{Key: "not_before", Value: in.Add(-2 * time.Hour)})
			foreign("plain")
			req.Sink = sink
			got := map[string]bool{}
			for range 3 {
				for _, c := range claimAs(t, s, req) {
					got[c.ID] = true
				}
			}
			if fmt.Sprint(got) != fmt.Sprintf("map[%s-past:true %s-plain:true]", name, name) {
				t.Errorf("claimed %v", got)
			}
			for _, id := range []string{"later", "epoch"} {
				info, err := s.Job(t.Context(), name+"-"+id)
				if err != nil || info.State != core.JobReady || info.Attempts != 0 || info.Redeliveries != 0 || !info.AvailableAt.Equal(in) {
					t.Errorf("%s is %+v, %v", id, info, err)
				}
			}
			// A person may send it ahead of its time.
			if n, err := s.Retry(t.Context(), core.JobFilter{IDs: []string{name + "-later"}}, operator); n != 1 || err != nil {
				t.Fatal(n, err)
			}
			if claimed := claimAs(t, s, req); len(claimed) != 1 || claimed[0].ID != name+"-later" {
				t.Errorf("claimed %+v", claimed)
			}
		})
	}
}
