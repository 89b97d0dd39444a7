package outboxtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gooutbox/outbox/core"
)

// T is what assertions need of a *testing.T.
type T interface {
	Helper()
	Errorf(format string, args ...any)
}

// Matcher says what an event or a job must be like. Make one with Like, LikeJob,
// Where or All.
type Matcher[V core.Event | core.Job] struct {
	text string
	// differs lists what is not as it must be, one line each.
	differs func(V) []string
}

// Like matches events that have each field that is set in e, and each header
// that it holds; fields that are left zero may be anything. Payloads that are
// both JSON are compared as values: neither spaces nor the order of keys count.
// Times are compared to the millisecond, as stores keep them.
func Like(e core.Event) Matcher[core.Event] {
	return Matcher[core.Event]{eventText(e), func(got core.Event) []string { return eventDiffers("", got, e) }}
}

// LikeJob is Like for jobs.
func LikeJob(j core.Job) Matcher[core.Job] {
	return Matcher[core.Job]{jobText(j), func(got core.Job) []string {
		return append(fieldsDiffer("", reflect.ValueOf(got), reflect.ValueOf(j)), eventDiffers("Event.", got.Event, j.Event)...)
	}}
}

// Where matches what ok returns true for. text says what that is, as in "a total
// over 100".
func Where[V core.Event | core.Job](text string, ok func(V) bool) Matcher[V] {
	return Matcher[V]{text, func(got V) []string {
		if ok(got) {
			return nil
		}
		return []string{"want " + text}
	}}
}

// All matches what each of the matchers does.
func All[V core.Event | core.Job](matchers ...Matcher[V]) Matcher[V] {
	var texts []string
	for _, m := range matchers {
		texts = append(texts, m.text)
	}
	return Matcher[V]{strings.Join(texts, ", and "), func(got V) []string {
		var all []string
		for _, m := range matchers {
			all = append(all, m.differs(got)...)
		}
		return all
	}}
}

// Matches tells whether m matches v.
func (m Matcher[V]) Matches(v V) bool { return len(m.differs(v)) == 0 }

func eventDiffers(prefix string, got, want core.Event) []string {
	diffs := fieldsDiffer(prefix, reflect.ValueOf(got), reflect.ValueOf(want))
	if want.Payload != nil && !samePayload(got.Payload, want.Payload) {
		diffs = append(diffs, fmt.Sprintf("%sPayload: got %s, want %s", prefix, payloadText(got.Payload), payloadText(want.Payload)))
	}
	for _, name := range slices.Sorted(maps.Keys(want.Headers)) {
		if value, ok := got.Headers[name]; !ok {
			diffs = append(diffs, fmt.Sprintf("%sHeaders[%q]: is missing, want %q", prefix, name, want.Headers[name]))
		} else if value != want.Headers[name] {
			diffs = append(diffs, fmt.Sprintf("%sHeaders[%q]: got %q, want %q", prefix, name, value, want.Headers[name]))
		}
	}
	return diffs
}

// fieldsDiffer compares the plain fields that are set in want.
func fieldsDiffer(prefix string, got, want reflect.Value) []string {
	var diffs []string
	for i := range want.NumField() {
		name, w, g := want.Type().Field(i).Name, want.Field(i), got.Field(i)
		if w.IsZero() || name == "Event" || name == "Payload" || name == "Headers" {
			continue
		}
		if at, ok := w.Interface().(time.Time); ok {
			if have := g.Interface().(time.Time); !have.Truncate(time.Millisecond).Equal(at.Truncate(time.Millisecond)) {
				diffs = append(diffs, fmt.Sprintf("%s%s: got %s, want %s", prefix, name, have.Format(time.RFC3339Nano), at.Format(time.RFC3339Nano)))
			}
			continue
		}
		if !w.Equal(g) {
			diffs = append(diffs, fmt.Sprintf("%s%s: got %s, want %s", prefix, name, valueText(g), valueText(w)))
		}
	}
	return diffs
}

func valueText(v reflect.Value) string {
	if v.Kind() == reflect.String {
		return fmt.Sprintf("%q", v)
	}
	return fmt.Sprint(v.Interface())
}

// samePayload compares JSON as values, and everything else byte by byte.
func samePayload(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	x, errA := jsonValue(a)
	y, errB := jsonValue(b)
	return errA == nil && errB == nil && reflect.DeepEqual(x, y)
}

// jsonValue keeps all digits of numbers.
func jsonValue(data []byte) (any, error) {
	var v any
	if !json.Valid(data) {
		return nil, errNoJSON
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	err := dec.Decode(&v)
	return v, err
}

// mostPayload is how many bytes of a payload a difference shows.
const mostPayload = 500

func payloadText(data []byte) string {
	switch {
	case len(data) == 0:
		return "nothing"
	case !utf8.Valid(data):
		return fmt.Sprintf("%d bytes %x", len(data), data[:min(len(data), mostPayload/10)])
	case len(data) > mostPayload:
		return strings.ToValidUTF8(string(data[:mostPayload]), "") + "…"
	}
	return string(data)
}

func eventText(e core.Event) string {
	text := e.Type
	if text == "" {
		text = "an event"
	}
	if e.AggregateID != "" {
		text += " of " + e.AggregateID
	}
	return text
}

func jobText(j core.Job) string {
	text := eventText(j.Event)
	if j.Type == "" {
		text = strings.Replace(text, "an event", "a job", 1)
	}
	if j.Sink != "" {
		text += " for sink " + j.Sink
	}
	return text
}
