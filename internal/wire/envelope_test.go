package wire_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/gooutbox/outbox/internal/wire"
)

// isXML is the rule for characters that XML 1.0 and Amazon SQS have.
func isXML(r rune) bool {
	return r == 0x9 || r == 0xA || r == 0xD || r >= 0x20 && r <= 0xD7FF || r >= 0xE000 && r <= 0xFFFD || r >= 0x10000 && r <= 0x10FFFF
}

func travels(h wire.Header) bool {
	return h.Value != "" && wire.IsText(h.Value, isXML) && !strings.HasPrefix(h.Name, "!")
}

func mapOf(headers []wire.Header) map[string]string {
	m := map[string]string{}
	for _, h := range headers {
		m[h.Name] = h.Value
	}
	return m
}

func TestHeadersThatAllTravelStayAsTheyAre(t *testing.T) {
	t.Parallel()
	in := []wire.Header{{Name: "a", Value: "1"}, {Name: "b", Value: "2"}}
	out, err := wire.Fit(in, 2, travels)
	if err != nil || !slices.Equal(out, in) {
		t.Errorf("%v, %v", out, err)
	}
}

// The form is a contract with consumers.
func TestTheRestIsOneJSONObject(t *testing.T) {
	t.Parallel()
	in := []wire.Header{
		{Name: "a", Value: "1"},
		{Name: "!b", Value: "2"},
		{Name: "c", Value: ""},
		{Name: "d", Value: "\x01\"\ufffe\uffff<"},
		{Name: "e", Value: "5"},
		{Name: "f", Value: "6"},
	}
	out, err := wire.Fit(in, 3, travels)
	if err != nil {
		t.Fatal(err)
	}
	want := []wire.Header{
		{Name: "a", Value: "1"},
		{Name: "e", Value: "5"},
		{Name: "outboxrest", Value: `{"!b":"2","c":"","d":"\u0001\"\ufffe\uffff\u003c","f":"6"}`},
	}
	if !slices.Equal(out, want) {
		t.Errorf("got %q\nwant %q", out, want)
	}
	back, err := wire.Gather(out)
	if err != nil || !maps.Equal(mapOf(back), mapOf(in)) {
		t.Errorf("gathered %q, %v", back, err)
	}
}

func TestNamesOfTheMessageItselfAreRefused(t *testing.T) {
	t.Parallel()
	for _, name := range []string{wire.Rest, wire.Body, "OutboxRest", "a\xff"} {
		if _, err := wire.Fit([]wire.Header{{Name: name, Value: "1"}}, 10, travels); err == nil {
			t.Errorf("a header named %q is taken", name)
		}
	}
}

func TestABodyOfAnUnknownKindIsNotGuessed(t *testing.T) {
	t.Parallel()
	if _, err := wire.Payload("x", "gzip"); err == nil {
		t.Error("no error")
	}
	if _, err := wire.Payload("%", wire.BodyBase64); err == nil {
		t.Error("no error")
	}
	if _, err := wire.Gather([]wire.Header{{Name: wire.Rest, Value: "["}}); err == nil {
		t.Error("no error")
	}
}

func FuzzTextTravelsAndComesBack(f *testing.F) {
	for _, seed := range []string{"", "-", "{}", "\x00", "\xff\xfe", "a\ufffe", "a\uffff", "é\r\n\t😀", "\ud7ff\ue000\ufffd"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		body, encoding := wire.Text(payload, isXML)
		if body == "" || !wire.IsText(body, isXML) {
			t.Fatalf("body %q can't travel", body)
		}
		back, err := wire.Payload(body, encoding)
		if err != nil || !bytes.Equal(back, payload) {
			t.Fatalf("%q came back as %q: %v", payload, back, err)
		}
	})
}

func FuzzHeadersTravelAndComeBack(f *testing.F) {
	f.Add("a", "1", "b", "", uint8(3), uint8(2))
	f.Add("x\ufffe", "\uffff", "!", "\x01", uint8(9), uint8(12))
	f.Fuzz(func(t *testing.T, name, value, other, another string, most, extra uint8) {
		in := []wire.Header{{Name: "1" + name, Value: value}, {Name: "2" + other, Value: another}}
		for i := range extra % 16 {
			in = append(in, wire.Header{Name: fmt.Sprintf("x%d", i), Value: "v"})
		}
		limit := 1 + int(most%12)
		out, err := wire.Fit(in, limit, travels)
		if err != nil {
			if utf8.ValidString(name) && utf8.ValidString(value) && utf8.ValidString(other) && utf8.ValidString(another) {
				t.Fatal(err)
			}
			return
		}
		if len(out) > limit {
			t.Fatalf("%d headers, limit %d", len(out), limit)
		}
		for _, h := range out {
			if !travels(h) {
				t.Fatalf("%q doesn't travel", h)
			}
		}
		back, err := wire.Gather(out)
		if err != nil || len(back) != len(in) || !maps.Equal(mapOf(back), mapOf(in)) {
			t.Fatalf("%q came back as %q: %v", in, back, err)
		}
	})
}
