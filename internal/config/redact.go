package config

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var (
	schemePattern = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*://`)
	// secretParameter matches query parameters that carry secrets.
	secretParameter = regexp.MustCompile(`(?i)([?&][^=&]*(?:password|properties|token|secret)[^=&]*=)([^&]*)`)
)

// hideURI returns uri without its secrets, and the secrets. It also copes with
// a malformed uri, such as one whose password holds an unescaped @ or /.
func hideURI(uri string) (shown string, secrets []string) {
	scheme := schemePattern.FindString(uri)
	rest := uri[len(scheme):]
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		user, password, found := strings.Cut(rest[:at], ":")
		if found {
			secrets = append(secrets, password)
		} else if scheme == "" {
			secrets = append(secrets, user)
		}
		rest = Hidden + rest[at:]
	}
	rest = secretParameter.ReplaceAllStringFunc(rest, func(s string) string {
		m := secretParameter.FindStringSubmatch(s)
		secrets = append(secrets, m[2])
		for part := range strings.SplitSeq(m[2], ",") {
			if _, v, ok := strings.Cut(part, ":"); ok {
				secrets = append(secrets, v)
			}
		}
		return m[1] + Hidden
	})
	for _, s := range slices.Clone(secrets) {
		if decoded, err := url.PathUnescape(s); err == nil && decoded != s {
			secrets = append(secrets, decoded)
		}
	}
	return scheme + rest, secrets
}

// minSecret is the length in bytes from which on a secret is searched for in
// text: hiding each "a" would leave no message readable. Shorter ones are still
// hidden where they are printed as values.
const minSecret = 4

// Redactor hides the secrets of a configuration in any text, in the forms in
// which libraries are apt to print them: as they are, escaped for URLs, JSON
// and Go, and in base64. The zero value hides nothing.
type Redactor struct {
	replacer *strings.Replacer
}

// NewRedactor returns a Redactor for the secrets.
func NewRedactor(secrets []string) Redactor {
	var forms []string
	for _, s := range secrets {
		if len(s) < minSecret {
			continue
		}
		asJSON, _ := json.Marshal(s)
		forms = append(forms, s, url.QueryEscape(s), url.PathEscape(s), url.UserPassword("", s).String()[1:],
			string(asJSON[1:len(asJSON)-1]), strings.Trim(strconv.Quote(s), `"`),
			base64.StdEncoding.EncodeToString([]byte(s)), base64.RawStdEncoding.EncodeToString([]byte(s)),
			base64.URLEncoding.EncodeToString([]byte(s)))
	}
	slices.SortFunc(forms, func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
	forms = slices.Compact(forms)
	if len(forms) == 0 {
		return Redactor{}
	}
	pairs := make([]string, 0, 2*len(forms))
	for _, f := range forms {
		pairs = append(pairs, f, Hidden)
	}
	return Redactor{replacer: strings.NewReplacer(pairs...)}
}

// String returns s without the secrets.
func (r Redactor) String(s string) string {
	if r.replacer == nil {
		return s
	}
	return r.replacer.Replace(s)
}

// Writer returns a writer that passes on to w what it is given, without the
// secrets. One that is split between two writes is not seen: write whole lines.
func (r Redactor) Writer(w io.Writer) io.Writer {
	if r.replacer == nil {
		return w
	}
	return redactingWriter{r, w}
}

type redactingWriter struct {
	r Redactor
	w io.Writer
}

func (w redactingWriter) Write(p []byte) (int, error) {
	if _, err := io.WriteString(w.w, w.r.String(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Redactor hides the secrets that the file holds.
func (f *File) Redactor() Redactor { return NewRedactor(f.secrets) }
