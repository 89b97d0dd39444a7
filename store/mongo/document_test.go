package mongo

import (
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/gooutbox/outbox/core"
)

// unconnected is a store that talks to no server.
func unconnected(t testing.TB, cfg Config) *Store {
	t.Helper()
	cfg, err := cfg.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	return &Store{cfg: cfg, columns: cfg.Fields.columns()}
}

func marshal(t testing.TB, doc any) bson.Raw {
	t.Helper()
	raw, err := bson.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestAnEventComesBackAsItWasAppended(t *testing.T) {
	t.Parallel()
	full := core.Event{
		ID: "id", Aggregate: "order", AggregateID: "o-1", Type: "order.placed", Version: 2, AggregateVersion: 1 << 40,
		Payload: []byte{0, 1, 255}, ContentType: "application/octet-stream", Headers: map[string]string{"a": "1", "b": ""},
		Tenant: "acme", OccurredAt: time.Date(2026, 2, 3, 4, 5, 6, 789e6, time.UTC), CorrelationID: "c",
	}
	least := core.Event{ID: "id", AggregateID: "k", Type: "t", Payload: []byte{}, OccurredAt: full.OccurredAt}
	for _, fields := range []Fields{{}, {ID: "event_id", Payload: "body", Type: "kind"}} {
		s := unconnected(t, Config{Fields: fields})
		for _, e := range []core.Event{full, least} {
			doc, err := s.document(t.Context(), &e)
			if err != nil {
				t.Fatal(err)
			}
			got, err := s.decodeEvent(t.Context(), doc)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, e) {
				t.Errorf("got  %+v\nwant %+v", got, e)
			}
		}
	}
}

func TestTheTutorialsDocumentIsDecodedAsItIs(t *testing.T) {
	t.Parallel()
	s := unconnected(t, Config{})
	id := bson.NewObjectID()
	at := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	doc := marshal(t, bson.D{
		{Key: "_id", Value: id},
		{Key: "aggregate", Value: "order"},
		{Key: "aggregate_id", Value: 42},
		{Key: "event_type", Value: "OrderPlaced"},
		{Key: "payload", Value: bson.D{{Key: "total", Value: 12.5}}},
		{Key: "version", Value: 1},
		{Key: "occurred_at", Value: at},
		{Key: "published_at", Value: nil},
		{Key: "attempts", Value: 0},
	})
	got, err := s.decodeEvent(t.Context(), doc)
	if err != nil {
		t.Fatal(err)
	}
	want := core.Event{
		ID: id.Hex(), Aggregate: "order", AggregateID: "42", Type: "OrderPlaced", Version: 1,
		Payload: []byte(`{"total":12.5}`), ContentType: "application/json", OccurredAt: at,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestIDsAndKeysOfOtherTypesBecomeText(t *testing.T) {
	t.Parallel()
	s := unconnected(t, Config{})
	object := bson.NewObjectID()
	id := uuid.MustParse("0198c5a0-1111-7abc-8def-0123456789ab")
	decimal, err := bson.ParseDecimal128("1.20E3")
	if err != nil {
		t.Fatal(err)
	}
	for want, value := range map[string]any{
		"plain": "plain", object.Hex(): object, id.String(): bson.Binary{Subtype: 4, Data: id[:]},
		"7": int32(7), "-8": int64(-8), "9": 9.0, "1200": decimal, "sym": bson.Symbol("sym"),
	} {
		got, err := s.decodeEvent(t.Context(), marshal(t, bson.D{
			{Key: "_id", Value: value}, {Key: "aggregate_id", Value: value}, {Key: "event_type", Value: "t"}, {Key: "payload", Value: ""},
		}))
		if err != nil || got.ID != want || got.AggregateID != want {
			t.Errorf("%T: got %q and %q, %v; want %q", value, got.ID, got.AggregateID, err, want)
		}
	}
}

// Plain JSON where JSON has the type, relaxed Extended JSON where it hasn't.
func TestPayloadsOfEveryKindGoOut(t *testing.T) {
	t.Parallel()
	s := unconnected(t, Config{})
	object, _ := bson.ObjectIDFromHex("0123456789abcdef01234567")
	decimal, _ := bson.ParseDecimal128("1.10")
	for _, tc := range []struct {
		name    string
		payload any
		want    string
		json    bool
	}{
		{"binary", bson.Binary{Data: []byte("\x00\x01")}, "\x00\x01", false},
		{"old binary", bson.Binary{Subtype: 2, Data: []byte("ab")}, "ab", false},
		{"empty binary", bson.Binary{Data: []byte{}}, "", false},
		{"string", `{"as": "it is"}`, `{"as": "it is"}`, false},
		{"array", bson.A{1, "a", nil}, `[1,"a",null]`, true},
		{"empty document", bson.D{}, `{}`, true},
		{
			"plain JSON",
			bson.D{{Key: "i", Value: int32(1)}, {Key: "s", Value: "<é>"}, {Key: "b", Value: true}, {Key: "n", Value: nil}},
			`{"i":1,"s":"<é>","b":true,"n":null}`, true,
		},
		{"int64 keeps its digits", bson.D{{Key: "v", Value: int64(9007199254740993)}}, `{"v":9007199254740993}`, true},
		{"whole double keeps its fraction", bson.D{{Key: "v", Value: 1.0}}, `{"v":1.0}`, true},
		{"date", bson.D{{Key: "v", Value: time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC)}}, `{"v":{"$date":"2026-01-02T03:04:05.006Z"}}`, true},
		{"ObjectId", bson.D{{Key: "v", Value: object}}, `{"v":{"$oid":"0123456789abcdef01234567"}}`, true},
		{"decimal", bson.D{{Key: "v", Value: decimal}}, `{"v":{"$numberDecimal":"1.10"}}`, true},
		{"nested binary", bson.D{{Key: "v", Value: bson.Binary{Data: []byte("a")}}}, `{"v":{"$binary":{"base64":"YQ==","subType":"00"}}}`, true},
	} {
		got, err := s.decodeEvent(t.Context(), marshal(t, bson.D{
			{Key: "_id", Value: "id"}, {Key: "aggregate_id", Value: "k"}, {Key: "event_type", Value: "t"}, {Key: "payload", Value: tc.payload},
		}))
		contentType := ""
		if tc.json {
			contentType = "application/json"
		}
		if err != nil || string(got.Payload) != tc.want || got.ContentType != contentType {
			t.Errorf("%s: got %q as %q, %v; want %q as %q", tc.name, got.Payload, got.ContentType, err, tc.want, contentType)
		}
	}
}

func TestHeadersOfOtherTypesBecomeText(t *testing.T) {
	t.Parallel()
	s := unconnected(t, Config{})
	got, err := s.decodeEvent(t.Context(), marshal(t, bson.D{
		{Key: "_id", Value: "id"},
		{Key: "aggregate_id", Value: "k"},
		{Key: "event_type", Value: "t"},
		{Key: "payload", Value: ""},
		{Key: "headers", Value: bson.D{
			{Key: "s", Value: "x"},
			{Key: "i", Value: 3},
			{Key: "b", Value: true},
			{Key: "f", Value: 0.5},
			{Key: "none", Value: nil},
			{Key: "d", Value: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)},
		}},
	}))
	want := map[string]string{"s": "x", "i": "3", "b": "true", "f": "0.5", "d": "2026-01-02T03:04:05Z"}
	if err != nil || !maps.Equal(got.Headers, want) {
		t.Fatalf("got %v, %v; want %v", got.Headers, err, want)
	}
}

func TestADocumentThatIsNoEventNamesTheFieldAndNotTheValue(t *testing.T) {
	t.Parallel()
	s := unconnected(t, Config{})
	const secret = "s3cret"
	valid := bson.D{
		{Key: "_id", Value: "id"},
		{Key: "aggregate_id", Value: "k"},
		{Key: "event_type", Value: "t"},
		{Key: "payload", Value: "p"},
		{Key: "headers", Value: bson.D{}},
		{Key: "tenant", Value: "acme"},
	}
	for _, tc := range []struct {
		field string
		value any // missing if it is this function's own marker
		name  string
	}{
		{"aggregate_id", missing, "aggregate_id"},
		{"event_type", missing, "event_type"},
		{"payload", missing, "payload"},
		{"payload", nil, "payload"},
		{"aggregate_id", "", "aggregate_id"},
		{"_id", bson.D{{Key: "a", Value: secret}}, "_id"},
		{"aggregate_id", bson.A{secret}, "aggregate_id"},
		{"aggregate_id", 1.5, "aggregate_id"},
		{"event_type", bson.Binary{Data: []byte(secret)}, "event_type"},
		{"payload", 12, "payload"},
		{"version", secret, "version"},
		{"version", -1, "version"},
		{"version", int64(1) << 40, "version"},
		{"aggregate_version", 0.5, "aggregate_version"},
		{"headers", secret, "headers"},
		{"headers", bson.D{{Key: "x", Value: bson.D{{Key: secret, Value: 1}}}}, "headers.x"},
		{"occurred_at", secret, "occurred_at"},
		{"occurred_at", 17, "occurred_at"},
		{"occurred_at", bson.DateTime(1 << 60), "occurred_at"},
		{"tenant", bson.A{}, "tenant"},
		{"codec", "unknown", "codec"},
	} {
		doc := slices.DeleteFunc(slices.Clone(valid), func(e bson.E) bool { return e.Key == tc.field })
		if tc.value != any(missing) {
			doc = append(doc, bson.E{Key: tc.field, Value: tc.value})
		}
		got, err := s.decodeEvent(t.Context(), marshal(t, doc))
		de, ok := errors.AsType[*DecodeError](err)
		if !ok || de.Field != tc.name || strings.Contains(err.Error(), secret) {
			t.Errorf("%s = %T: got %v, want a DecodeError of %s without the value", tc.field, tc.value, err, tc.name)
		}
		if tc.field != "tenant" && got.Tenant != "acme" {
			t.Errorf("%s: what could be read is not in the event: %+v", tc.field, got)
		}
	}
}

const missing = "\x00missing"

func TestAFieldThatLacksIsToldAsItIs(t *testing.T) {
	t.Parallel()
	s := unconnected(t, Config{Fields: Fields{Type: "name"}})
	for _, tc := range []struct {
		doc  bson.D
		says string
	}{
		{bson.D{{Key: "_id", Value: "1"}, {Key: "aggregate_id", Value: "k"}, {Key: "name", Value: "t"}}, `"payload" is missing`},
		{bson.D{{Key: "_id", Value: "1"}, {Key: "aggregate_id", Value: "k"}, {Key: "name", Value: "t"}, {Key: "payload", Value: nil}}, `"payload" is null`},
		{bson.D{{Key: "_id", Value: "1"}, {Key: "aggregate_id", Value: "k"}, {Key: "name", Value: nil}, {Key: "payload", Value: ""}}, `"name" is null`},
		{bson.D{{Key: "_id", Value: "1"}, {Key: "aggregate_id", Value: ""}, {Key: "name", Value: "t"}, {Key: "payload", Value: ""}}, `"aggregate_id" is empty`},
		{bson.D{{Key: "_id", Value: "1"}, {Key: "name", Value: "t"}, {Key: "payload", Value: ""}}, `"aggregate_id" is missing`},
	} {
		_, err := s.decodeEvent(t.Context(), marshal(t, tc.doc))
		if err == nil || !strings.HasSuffix(err.Error(), tc.says) {
			t.Errorf("got %v, want %s", err, tc.says)
		}
	}
	// What is there is no lack: the JSON null, and nothing at all.
	for _, payload := range []any{"null", "", bson.Binary{}} {
		doc := bson.D{{Key: "_id", Value: "1"}, {Key: "aggregate_id", Value: "k"}, {Key: "name", Value: "t"}, {Key: "payload", Value: payload}}
		if e, err := s.decodeEvent(t.Context(), marshal(t, doc)); err != nil || e.Payload == nil {
			t.Errorf("payload %#v: %v, %#v", payload, err, e.Payload)
		}
	}
}

func TestADecodedEventSharesNothingWithTheDocument(t *testing.T) {
	t.Parallel()
	s := unconnected(t, Config{})
	e := order("id")
	e.Headers = map[string]string{"a": "b"}
	e.OccurredAt = time.Unix(1, 0).UTC()
	doc, err := s.document(t.Context(), &e)
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.decodeEvent(t.Context(), doc)
	if err != nil {
		t.Fatal(err)
	}
	for i := range doc {
		doc[i] = 0xff
	}
	if !reflect.DeepEqual(got, e) {
		t.Fatalf("the event changed with the document: %+v", got)
	}
}

// reverse is a codec that turns payloads around.
type reverse struct{ openErr error }

func (reverse) Name() string { return "reverse" }

func (reverse) Seal(_ context.Context, payload, additional []byte) ([]byte, string, error) {
	sealed := slices.Clone(payload)
	slices.Reverse(sealed)
	return sealed, "key of " + string(additional), nil
}

func (r reverse) Open(_ context.Context, sealed, additional []byte, keyID string) ([]byte, error) {
	if keyID != "key of "+string(additional) {
		return nil, core.MarkRejected(errors.New("wrong key"))
	}
	payload := slices.Clone(sealed)
	slices.Reverse(payload)
	return payload, r.openErr
}

func TestAPayloadIsSealedAtRestAndOpenedWhenRead(t *testing.T) {
	t.Parallel()
	s := unconnected(t, Config{Codec: reverse{}})
	e := order("id")
	e.Payload = []byte("abc")
	doc, err := s.document(t.Context(), &e)
	if err != nil {
		t.Fatal(err)
	}
	if _, data := doc.Lookup("payload").Binary(); string(data) != "cba" {
		t.Fatalf("stored %q", data)
	}
	got, err := s.decodeEvent(t.Context(), doc)
	if err != nil || string(got.Payload) != "abc" {
		t.Fatalf("got %q, %v", got.Payload, err)
	}
	s.cfg.Codec = reverse{openErr: errors.New("the key service is down")}
	if _, err := s.decodeEvent(t.Context(), doc); err == nil || isDecodeError(err) {
		t.Fatalf("got %v, want an error that a later read may cure", err)
	}
	s.cfg.Codec = reverse{openErr: core.MarkRejected(errors.New("the key was destroyed"))}
	if _, err := s.decodeEvent(t.Context(), doc); !isDecodeError(err) {
		t.Fatalf("got %v, want a DecodeError", err)
	}
}

func FuzzDecodeEvent(f *testing.F) {
	s := unconnected(f, Config{})
	e := order("id")
	e.Headers = map[string]string{"a": "b"}
	doc, err := s.document(f.Context(), &e)
	if err != nil {
		f.Fatal(err)
	}
	body := func(doc bson.Raw) []byte { return doc[4 : len(doc)-1] }
	f.Add(body(doc))
	f.Add(body(marshal(f, bson.D{
		{Key: "_id", Value: bson.NewObjectID()},
		{Key: "aggregate_id", Value: 1},
		{Key: "event_type", Value: "t"},
		{Key: "payload", Value: bson.D{{Key: "a", Value: bson.A{1.5, bson.Regex{Pattern: "a"}}}}},
		{Key: "occurred_at", Value: time.Unix(0, 0)},
	})))
	f.Add(body(marshal(f, bson.D{{Key: "payload", Value: bson.CodeWithScope{Code: "x", Scope: bson.D{}}}, {Key: "_id", Value: bson.Binary{Subtype: 2, Data: []byte("x")}}})))
	f.Fuzz(func(t *testing.T, data []byte) {
		// Length and end are made right: the server checks them, and what is
		// within is what can surprise.
		data = append(append(binary.LittleEndian.AppendUint32(nil, uint32(len(data)+5)), data...), 0)
		got, err := s.decodeEvent(t.Context(), data)
		if err != nil {
			if !isDecodeError(err) {
				t.Fatalf("an error of another kind: %v", err)
			}
			return
		}
		if got.ID == "" || got.Type == "" || got.AggregateID == "" {
			t.Fatalf("an event that is none: %+v", got)
		}
		// What was decoded can be stored, and comes back the same.
		doc, err := s.document(t.Context(), &got)
		if err != nil {
			t.Fatal(err)
		}
		again, err := s.decodeEvent(t.Context(), doc)
		if err != nil || !slices.Equal(again.Payload, got.Payload) || again.ID != got.ID || again.AggregateID != got.AggregateID {
			t.Fatalf("came back as %+v, %v; was %+v", again, err, got)
		}
	})
}

func BenchmarkDecodeEvent(b *testing.B) {
	s := unconnected(b, Config{})
	e := order("0198c5a0-1111-7abc-8def-0123456789ab")
	e.Payload = make([]byte, 500)
	e.OccurredAt = time.Now()
	doc, err := s.document(b.Context(), &e)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.decodeEvent(b.Context(), doc); err != nil {
			b.Fatal(err)
		}
	}
}
