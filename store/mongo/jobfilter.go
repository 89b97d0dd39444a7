package mongo

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/gooutbox/outbox/core"
)

// anyJob matches jobs: pauses have no state.
var anyJob = bson.E{Key: "state", Value: op("$gt", "")}

// selecting is the query of a filter. ok is false for the zero filter, which
// selects none.
func (s *Store) selecting(f core.JobFilter) (query bson.D, ok bool) {
	if reflect.ValueOf(f).IsZero() {
		return nil, false
	}
	query = bson.D{anyJob}
	if f.IDs != nil {
		ids := bson.A{}
		for _, name := range f.IDs {
			ids = append(ids, s.idsNamed(name)...)
		}
		query = append(query, bson.E{Key: "_id", Value: op("$in", ids)})
	}
	if f.State != "" {
		query[0].Value = f.State
	}
	for _, one := range []struct{ field, value string }{
		{"sink", f.Sink},
		{"tenant", f.Tenant},
		{"event_type", f.Type},
		{"cursor", f.Cursor},
		{"failure.code", f.Code},
	} {
		if one.value != "" {
			query = append(query, bson.E{Key: one.field, Value: one.value})
		}
	}
	if f.Key != "" {
		query = append(query, bson.E{Key: "aggregate_id", Value: op("$in", valuesNamed(f.Key))})
	}
	if f.OlderThan > 0 {
		query = append(query, bson.E{Key: "$expr", Value: op("$lt", bson.A{"$enqueued_at", fromNow(-f.OlderThan)})})
	}
	return query, true
}

// among narrows a query down to some states.
func among(query bson.D, states ...core.JobState) bson.D {
	return bson.D{{Key: "$and", Value: bson.A{query, bson.D{{Key: "state", Value: op("$in", states)}}}}}
}

// describe writes a filter for the record of an act.
func describe(f core.JobFilter) string {
	var parts []string
	add := func(name, value string) {
		if value != "" {
			parts = append(parts, name+"="+value)
		}
	}
	switch {
	case len(f.IDs) == 1:
		add("id", f.IDs[0])
	case len(f.IDs) > 1:
		add("ids", fmt.Sprintf("%s and %d more", f.IDs[0], len(f.IDs)-1))
	}
	add("state", string(f.State))
	add("sink", f.Sink)
	add("tenant", f.Tenant)
	add("type", f.Type)
	add("key", f.Key)
	add("cursor", f.Cursor)
	add("code", f.Code)
	if f.OlderThan > 0 {
		add("older than", f.OlderThan.Round(time.Second).String())
	}
	if len(parts) == 0 {
		return "all jobs"
	}
	return strings.Join(parts, " ")
}
