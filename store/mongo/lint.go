package mongo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/gooutbox/outbox/core"
)

// LintRequest says which documents Lint looks at.
type LintRequest struct {
	// Limit is how many documents of each collection are read, the newest first,
	// as far as the server knows. Defaults to 10,000; negative reads all.
	Limit int
	// Sample, where positive, reads so many at random instead.
	Sample int
	// Examples is how many ids a finding names. Defaults to 3.
	Examples int
}

// Defaults of LintRequest.
const (
	DefaultLintLimit    = 10_000
	DefaultLintExamples = 3
)

// LintReport is what Lint found.
type LintReport struct {
	// Events and Jobs are how many documents were looked at.
	Events, Jobs int64
	// Findings begin with those that are Fatal.
	Findings []LintFinding
}

// LintFinding is one way in which documents differ from the documented layout.
type LintFinding struct {
	// Collection and Field, which is empty for the document as a whole.
	Collection, Field string
	// Problem says what is wrong, without the value.
	Problem string
	// Advice says what to do.
	Advice string
	// Fatal: such a document can't be delivered.
	Fatal bool
	// Count of the documents, and the ids of the first few.
	Count    int64
	Examples []string
}

// Lint compares stored documents with the documented layout, as programs in
// other languages write them: first of all whether they can be delivered. It
// reads by the same rules as cursors and workers do, changes nothing, and may
// run beside them. Where there is no outbox it returns core.ErrNoOutbox.
func (s *Store) Lint(ctx context.Context, req LintRequest) (LintReport, error) {
	ctx = withoutSession(ctx)
	l := linter{store: s, examples: orDefault(req.Examples, DefaultLintExamples), found: map[lintKey]*LintFinding{}}
	var events int64
	err := s.exists(ctx)
	if err == nil {
		events, err = l.each(ctx, s.log, req, l.event)
	}
	if err == nil {
		l.mixed(&l.ids)
		l.mixed(&l.keys)
		l.report.Events = events
		l.report.Jobs, err = l.each(ctx, s.jobs, req, l.job)
	}
	if err != nil {
		return LintReport{}, fmt.Errorf("looking at stored documents: %w", err)
	}
	for _, f := range l.order {
		l.report.Findings = append(l.report.Findings, *f)
	}
	slices.SortStableFunc(l.report.Findings, func(a, b LintFinding) int {
		if a.Fatal != b.Fatal {
			if a.Fatal {
				return -1
			}
			return 1
		}
		return cmp.Or(strings.Compare(a.Collection, b.Collection), cmp.Compare(b.Count, a.Count), strings.Compare(a.Field, b.Field))
	})
	return l.report, nil
}

// linter gathers findings.
type linter struct {
	store    *Store
	examples int
	report   LintReport
	// found holds each finding by itself without its count, and order in the
	// order in which they came.
	found     map[lintKey]*LintFinding
	order     []*LintFinding
	ids, keys kinds
}

// each calls look for the documents of a collection that are asked for.
func (l *linter) each(ctx context.Context, coll *mongo.Collection, req LintRequest, look func(context.Context, bson.Raw)) (n int64, err error) {
	var cur *mongo.Cursor
	if req.Sample > 0 {
		cur, err = coll.Aggregate(ctx, bson.A{op("$sample", bson.D{{Key: "size", Value: req.Sample}})})
	} else {
		opts := options.Find().SetSort(bson.D{{Key: "$natural", Value: -1}})
		if limit := orDefault(req.Limit, DefaultLintLimit); limit > 0 {
			opts.SetLimit(int64(limit))
		}
		cur, err = coll.Find(ctx, bson.D{}, opts)
	}
	if err != nil {
		return 0, err
	}
	defer cur.Close(ctx) //nolint:errcheck // nothing was written
	for ; cur.Next(ctx); n++ {
		look(ctx, cur.Current)
	}
	return n, cur.Err()
}

type lintKey struct{ collection, field, problem string }

// add counts one document.
func (l *linter) add(f LintFinding, raw bson.Raw) {
	key := lintKey{f.Collection, f.Field, f.Problem}
	known := l.found[key]
	if known == nil {
		known = &f
		l.found[key] = known
		l.order = append(l.order, known)
	}
	known.Count++
	if len(known.Examples) < l.examples {
		known.Examples = append(known.Examples, lintName(raw))
	}
}

// lintName is an id as commands take it, cut to a length that fits a line.
func lintName(raw bson.Raw) string {
	id := raw.Lookup("_id")
	name := jobName(id)
	if name == "" {
		name = id.String()
	}
	return cutText(name, maxLintName)
}

const maxLintName = 200

// event looks at a document of the log.
func (l *linter) event(ctx context.Context, raw bson.Raw) {
	fields := &l.store.cfg.Fields
	add := func(fatal bool, field, problem, advice string) {
		l.add(LintFinding{Collection: l.store.log.Name(), Field: field, Problem: problem, Advice: advice, Fatal: fatal}, raw)
	}
	e, err := l.store.decodeEvent(ctx, raw)
	if d, ok := errors.AsType[*DecodeError](err); ok {
		add(true, d.Field, d.Problem, "a relay sets it aside, see `outbox failed --code undecodable`: correct its producer")
		return
	}
	if err != nil {
		add(false, fields.Payload, "could not be opened just now", "see whether the codec's keys can be reached")
		return
	}
	l.ids.note(l.store.log.Name(), fields.ID, raw)
	l.keys.note(l.store.log.Name(), fields.AggregateID, raw)
	for _, f := range fieldErrors(e.Validate(LargestEventBytes)) {
		add(false, storedName(fields, f.Field), f.Problem, "Append would refuse it, and a sink may: correct its producer")
	}
	switch t, _, stamped := raw.Lookup(fields.Seq).TimestampOK(); {
	case stamped && t == 0:
		add(false, fields.Seq, "was not filled by the server", "insert it as Timestamp(0, 0) by a plain insert: scans pass over it as it is")
	case !stamped && raw.Lookup(fields.OccurredAt).Type == bson.TypeDateTime && raw.Lookup(fields.ID).Type != bson.TypeObjectID:
		add(false, fields.Seq, "is missing", "insert it as Timestamp(0, 0): scans find the event by "+fields.OccurredAt+
			" alone, and only if that was written at the insert")
	}
}

// fieldErrors are the errors that Validate has joined.
func fieldErrors(err error) []*core.FieldError {
	var found []*core.FieldError
	switch e := err.(type) { //nolint:errorlint // it walks the tree itself
	case nil:
	case *core.FieldError:
		found = append(found, e)
	case interface{ Unwrap() []error }:
		for _, one := range e.Unwrap() {
			found = append(found, fieldErrors(one)...)
		}
	case interface{ Unwrap() error }:
		found = fieldErrors(e.Unwrap())
	}
	return found
}

// storedName is that of an event's field.
func storedName(f *Fields, field string) string {
	switch field {
	case "ID":
		return f.ID
	case "Aggregate":
		return f.Aggregate
	case "AggregateID":
		return f.AggregateID
	case "Type":
		return f.Type
	case "Tenant":
		return f.Tenant
	case "ContentType":
		return f.ContentType
	case "CorrelationID":
		return f.CorrelationID
	case core.WholeEvent:
		return ""
	}
	return f.Headers
}

// kinds counts which types a field has.
type kinds struct {
	collection, field string
	of                map[bson.Type][]bson.Raw // the first few documents
	counts            map[bson.Type]int64
}

func (k *kinds) note(collection, field string, raw bson.Raw) {
	if k.of == nil {
		k.collection, k.field, k.of, k.counts = collection, field, map[bson.Type][]bson.Raw{}, map[bson.Type]int64{}
	}
	t := raw.Lookup(field).Type
	k.counts[t]++
	if len(k.of[t]) < DefaultLintExamples {
		k.of[t] = append(k.of[t], slices.Clone(raw))
	}
}
