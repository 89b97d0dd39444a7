package sqs

import (
	"strings"
	"testing"
)

func TestIdentifiersThatSQSTakesStayAsTheyAre(t *testing.T) {
	t.Parallel()
	for _, id := range []string{
		"order-1", "0190e6b5-6f2e-7cc1-bd1c-2f5f0b7a3a10", "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", strings.Repeat("x", 128), "sha25:", "SHA256:",
	} {
		if got := identifier(id); got != id {
			t.Errorf("%q became %q", id, got)
		}
	}
}

// The form is a contract: consumers may look for the group of a key.
func TestOtherIdentifiersAreHashed(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"", " ", "a b", "é", "a\n", "\x7f", strings.Repeat("x", 129), "sha256:", "sha256:abc"} {
		if got := identifier(id); !identifierText.MatchString(got) || !strings.HasPrefix(got, "sha256:") || len(got) != 71 {
			t.Errorf("%q became %q", id, got)
		}
	}
	if got := identifier("a b"); got != "sha256:c8687a08aa5d6ed2044328fa6a697ab8e96dc34291e8c2034ae8c38e6fcc6d65" {
		t.Errorf("the hash of \"a b\" is %s", got)
	}
}

func FuzzIdentifiersAreSafeAndDistinct(f *testing.F) {
	f.Add("a", "b")
	f.Add("", " ")
	f.Add("a b", identifier("a b"))
	f.Add(identifier("sha256:"), identifier(identifier("sha256:")))
	f.Fuzz(func(t *testing.T, a, b string) {
		x, y := identifier(a), identifier(b)
		if !identifierText.MatchString(x) {
			t.Fatalf("%q became %q", a, x)
		}
		if (a == b) != (x == y) {
			t.Fatalf("%q and %q became %q and %q", a, b, x, y)
		}
		if again := identifier(x); again == x && x != a {
			t.Fatalf("%q became %q, which is the identifier of itself too", a, x)
		}
	})
}

func FuzzAttributeNames(f *testing.F) {
	for _, seed := range []string{"ce_id", "content-type", "a.b", ".a", "a.", "a..b", "AWS.x", "Amazon.x", "aws", "x!", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		lower := strings.ToLower(name)
		want := attributeName.MatchString(name) && len(name) <= 256 && !strings.HasPrefix(lower, "aws.") && !strings.HasPrefix(lower, "amazon.")
		if got := isAttributeName(name); got != want {
			t.Fatalf("%q: %v, want %v", name, got, want)
		}
	})
}
