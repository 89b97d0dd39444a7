package mongo

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// Fields names the fields of the log's documents, for a collection that exists
// already and calls them otherwise. An empty name means the default. Names are
// those of top-level fields.
type Fields struct {
	// ID holds the event's id. Defaults to "_id".
	ID string
	// Seq holds the server's timestamp of the insert. Defaults to "seq".
	Seq string
	// Aggregate holds core.Event.Aggregate. Defaults to "aggregate".
	Aggregate string
	// AggregateID holds the key. Defaults to "aggregate_id".
	AggregateID string
	// Type holds core.Event.Type. Defaults to "event_type".
	Type string
	// Payload holds the body. Defaults to "payload".
	Payload string
	// ContentType holds the payload's media type. Defaults to "content_type".
	ContentType string
	// Version holds the version of the payload's schema. Defaults to
	// "version".
	Version string
	// AggregateVersion holds core.Event.AggregateVersion. Defaults to
	// "aggregate_version".
	AggregateVersion string
	// Headers holds a document of header names and values. Defaults to
	// "headers".
	Headers string
	// Tenant holds core.Event.Tenant. Defaults to "tenant".
	Tenant string
	// OccurredAt holds the producer's time. Defaults to "occurred_at".
	OccurredAt string
	// CorrelationID holds core.Event.CorrelationID. Defaults to
	// "correlation_id".
	CorrelationID string
	// PublishedAt holds when the event was delivered, where marking is on.
	// Defaults to "published_at".
	PublishedAt string
	// Codec holds the name of what sealed the payload. Defaults to "codec".
	Codec string
	// KeyID holds the id of the key that sealed the payload. Defaults to
	// "key_id".
	KeyID string
}

// column is one field of an event as decoding meets it.
type column uint8

const (
	columnNone column = iota
	columnID
	columnAggregate
	columnAggregateID
	columnType
	columnPayload
	columnContentType
	columnVersion
	columnAggregateVersion
	columnHeaders
	columnTenant
	columnOccurredAt
	columnCorrelationID
	columnCodec
	columnKeyID
)

var defaultFields = Fields{
	ID: "_id", Seq: "seq", Aggregate: "aggregate", AggregateID: "aggregate_id", Type: "event_type",
	Payload: "payload", ContentType: "content_type", Version: "version", AggregateVersion: "aggregate_version",
	Headers: "headers", Tenant: "tenant", OccurredAt: "occurred_at", CorrelationID: "correlation_id",
	PublishedAt: "published_at", Codec: "codec", KeyID: "key_id",
}

// withDefaults returns f with its empty names set, and every problem at once.
func (f Fields) withDefaults() (Fields, error) {
	var errs []error
	taken := map[string]string{}
	names, defaults := reflect.ValueOf(&f).Elem(), reflect.ValueOf(defaultFields)
	for i := range names.NumField() {
		field := "Fields." + names.Type().Field(i).Name
		name := orDefault(names.Field(i).String(), defaults.Field(i).String())
		names.Field(i).SetString(name)
		if strings.ContainsAny(name, "$.\x00") {
			errs = append(errs, fmt.Errorf("%s %q is no top-level name: it must not contain $ or a dot", field, name))
		}
		if name == "_id" && field != "Fields.ID" {
			errs = append(errs, fmt.Errorf("%s can't be _id: only Fields.ID may be", field))
		}
		if other, twice := taken[name]; twice {
			errs = append(errs, fmt.Errorf("%s and %s are both %q", other, field, name))
		}
		taken[name] = field
	}
	return f, errors.Join(errs...)
}

// columns maps stored names to what they hold.
func (f Fields) columns() map[string]column {
	return map[string]column{
		f.ID: columnID, f.Aggregate: columnAggregate, f.AggregateID: columnAggregateID, f.Type: columnType,
		f.Payload: columnPayload, f.ContentType: columnContentType, f.Version: columnVersion,
		f.AggregateVersion: columnAggregateVersion, f.Headers: columnHeaders, f.Tenant: columnTenant,
		f.OccurredAt: columnOccurredAt, f.CorrelationID: columnCorrelationID, f.Codec: columnCodec, f.KeyID: columnKeyID,
	}
}
