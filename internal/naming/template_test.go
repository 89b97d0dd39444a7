package naming

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gooutbox/outbox/core"
)

const most = 20

func spec() Spec {
	return Spec{What: "topic", Owner: "topic's name", Field: "Topic", Most: most, Valid: func(name string) error {
		if name == "" || len(name) > most || strings.Contains(name, " ") {
			return errors.New("a name has 1 to 20 bytes and no space")
		}
		return nil
	}}
}

func specOfKey() Spec {
	s := spec()
	s.AggregateID = true
	return s
}

func mustParse(t *testing.T, text string, s Spec) *Template {
	t.Helper()
	tmpl, err := Parse(text, s)
	if err != nil {
		t.Fatal(err)
	}
	return tmpl
}

func TestNamesThatAreRememberedAreBounded(t *testing.T) {
	t.Parallel()
	tmpl := mustParse(t, "{{ .Type }}", spec())
	for i := range maxNames + 10 {
		l := core.Lease{Event: core.Event{Type: fmt.Sprintf("type-%d", i)}}
		if name, err := tmpl.Of(&l); err != nil || name != l.Event.Type {
			t.Fatal(name, err)
		}
	}
	if n := len(tmpl.names); n > maxNames {
		t.Errorf("%d names are remembered", n)
	}
}

// Fields of an event may be of any size: it may not come from this project's
// own producer.
func TestOnlyNamesOfValidEventsAreRemembered(t *testing.T) {
	t.Parallel()
	huge := strings.Repeat("x", 1<<20)
	for _, c := range []struct {
		name, template string
		event          core.Event
		want           string
	}{
		{"a huge name", "{{ .Type }}", core.Event{Type: huge}, ""},
		{"a name over the limit", "{{ .Type }}", core.Event{Type: huge[:most+1]}, ""},
		{"an illegal name", "{{ .Type }}", core.Event{Type: "no topic"}, ""},
		{"a field that the name doesn't need", "{{ .Type }}", core.Event{Type: "t", Tenant: huge}, "t"},
		{"a part of a field", "{{ slice .Type 0 3 }}", core.Event{Type: huge}, "xxx"},
		{"a field in place of a name", "{{ required .Type .Tenant }}", core.Event{Type: huge}, ""},
		{"an error of the template", "{{ slice .Type 1 3 | slice .Aggregate }}", core.Event{Type: huge, Aggregate: huge}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			tmpl, err := parse(c.template, spec())
			if err != nil {
				t.Fatal(err)
			}
			name, err := tmpl.Of(&core.Lease{Event: c.event})
			if name != c.want || (err == nil) != (c.want != "") {
				t.Errorf("name %.20q (%.100v), want %q", name, err, c.want)
			}
			if err != nil && len(err.Error()) > 400 {
				t.Errorf("the reason has %d bytes", len(err.Error()))
			}
			if len(tmpl.names) != 0 {
				t.Error("the name is remembered")
			}
		})
	}
}

func TestANameIsNotMadeBeyondItsLimit(t *testing.T) {
	t.Parallel()
	w := writer{most: most}
	for range 300 {
		_, _ = w.Write([]byte("xxx"))
	}
	if n := len(w.name); n != most+1 {
		t.Errorf("%d bytes were made, want %d", n, most+1)
	}
}

// What is remembered must depend on nothing but what it is remembered under,
// whatever way the template takes.
func TestNamesThatDependOnTheKeyAreNotRemembered(t *testing.T) {
	t.Parallel()
	for text, depends := range map[string]bool{
		"{{ .AggregateID }}":                      true,
		"{{ with . }}{{ .AggregateID }}{{ end }}": true,
		"{{ $e := . }}{{ $e.AggregateID }}":       true,
		"{{ .Type }}":                             false,
		"{{ len (printf \"%v\" .) }}":             false, // the whole, of which the key is no part then
	} {
		tmpl := mustParse(t, text, specOfKey())
		of := func(id string) string {
			name, err := tmpl.Of(&core.Lease{Event: core.Event{Type: "t", AggregateID: id}})
			if err != nil {
				t.Fatal(err)
			}
			return name
		}
		if a, b := of("a"), of("longer"); (a != b) != depends || (len(tmpl.names) == 0) != depends {
			t.Errorf("%s makes %q and %q, %d are remembered", text, a, b, len(tmpl.names))
		}
	}
}

func TestFixedIsTheSameForAllEvents(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"events": "events", `{{ "events" }}`: "events", "{{ .Type }}": "", "{{ .AggregateID }}": "", "x{{ .Version }}": "",
	} {
		if got := mustParse(t, text, specOfKey()).Fixed(); got != want {
			t.Errorf("%s: fixed %q, want %q", text, got, want)
		}
	}
}

func TestATemplateThatMakesNoNameIsRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"{{ .Type":           "is no template: ",
		"{{ .Typ }}":         "makes no topic of a sample event: there is no .Typ; a template may use .Type, .Aggregate, .Tenant, .Version, .Route",
		"{{ .AggregateID }}": "makes no topic of a sample event: there is no .AggregateID; a template may use .Type, ",
		"a b":                "makes no topic of a sample event: Topic makes no valid topic: a name has 1 to 20 bytes and no space",
		"":                   "makes no topic of a sample event: Topic makes no valid topic: ",
	} {
		if _, err := Parse(text, spec()); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	if _, err := Parse("{{ .Typ }}", specOfKey()); err == nil || !strings.Contains(err.Error(), ".AggregateID") {
		t.Errorf("the fields that there are: %v", err)
	}
}

func TestErrorsNameTheFields(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"{{ .Tenant }}":                          "Tenant makes no valid topic: ",
		`{{ required "Tenant" .Tenant }}`:        "Tenant is empty, and the topic's name needs it",
		"{{ .Tenant }}{{ .Tenant }}{{ .Route }}": "Tenant, Route makes no valid topic: ",
		"{{ slice .Tenant 2 4 }}":                "Tenant makes no topic: ",
	} {
		_, err := mustParse(t, text, spec()).Of(&core.Lease{Event: core.Event{Type: "t"}})
		if _, is := errors.AsType[*core.FieldError](err); !is || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
