package mail

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

// tree makes a file system of names and texts.
func tree(files map[string]string) fstest.MapFS {
	fs := fstest.MapFS{}
	for name, text := range files {
		fs[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return fs
}

func resets() map[string]string {
	return map[string]string{
		"_shared/layout.html":          `<html><head><style>p { color: red } @media print { p { color: black } }</style></head><body>{{template "content" .}}{{template "foot"}}</body></html>`,
		"_shared/partials/foot.html":   `{{define "foot"}}<p>Shop</p>{{end}}`,
		"_shared/foot.txt":             `{{define "foot"}}-- Shop{{end}}`,
		"reset/sample.json":            `{"name":"Ada","link":"https://shop.example/r?a=1&b=2"}`,
		"reset/default/subject.txt":    "Reset your password, {{.name}}\n",
		"reset/default/body.html":      `{{define "content"}}<p>Hi {{.name}}, <a href="{{.link}}">reset</a>.</p>{{end}}{{template "_shared/layout.html" .}}`,
		"reset/de/subject.txt":         "Neues Kennwort, {{.name}}",
		"reset/de/body.txt":            "Hallo {{.name}}: {{.link}}\n{{template \"foot\"}}\n",
		"reset/de/body.html":           `<p>Hallo {{.name}}</p>`,
		"reset/de/sample.json":         `{"name":"Jürgen","link":"https://shop.example"}`,
		"invoices/paid/en/subject.txt": "Paid {{.n}}{{if .note}} ({{.note}}){{end}}",
		"invoices/paid/en/body.txt":    "{{range .rows}}{{.}};{{end}}",
		"invoices/paid/en/README.md":   "not a template",
		"invoices/paid/sample.json":    `{"n": 1234567, "note": null, "rows": [1, 2.5, "x"]}`,
		".git/default/subject.txt":     "{{ broken",
	}
}

func parsed(t *testing.T, options TemplateOptions) *Templates {
	t.Helper()
	all, err := ParseTemplates(tree(resets()), options)
	require.NoError(t, err)
	return all
}

func TestLocalesFallBack(t *testing.T) {
	t.Parallel()
	all := parsed(t, TemplateOptions{})
	require.Equal(t, []string{"invoices/paid", "reset"}, all.Names())
	require.Equal(t, []string{"de", "default"}, all.Locales("reset"))
	data := json.RawMessage(`{"name":"Ada","link":"https://x.example/?a=1&b=2"}`)
	for locale, subject := range map[string]string{
		"de": "Neues Kennwort, Ada", "de-AT": "Neues Kennwort, Ada", "DE_at-x-1": "Neues Kennwort, Ada",
		"": "Reset your password, Ada", "fr": "Reset your password, Ada", "deu": "Reset your password, Ada",
	} {
		r, err := all.Render("reset", locale, data)
		require.NoError(t, err)
		require.Equal(t, subject, r.Subject, locale)
	}
	_, err := all.Render("invoices/paid", "de", nil)
	require.ErrorContains(t, err, `neither the locale "de" nor a default`)
	_, err = all.Render("nothing", "de", nil)
	require.ErrorContains(t, err, "no template")
	require.JSONEq(t, `{"name":"Jürgen","link":"https://shop.example"}`, string(all.Sample("reset", "de")))
	require.JSONEq(t, `{"name":"Ada","link":"https://shop.example/r?a=1&b=2"}`, string(all.Sample("reset", "default")))
}

func TestEachBodyEscapesAsItsLanguageNeeds(t *testing.T) {
	t.Parallel()
	all := parsed(t, TemplateOptions{})
	data := json.RawMessage(`{"name":"<b>Ada & Bo","link":"https://x.example/?a=1&b=2"}`)
	r, err := all.Render("reset", "de", data)
	require.NoError(t, err)
	require.Equal(t, "Neues Kennwort, <b>Ada & Bo", r.Subject)
	require.Equal(t, "Hallo <b>Ada & Bo: https://x.example/?a=1&b=2\n-- Shop\n", r.Text)
	require.Equal(t, "<p>Hallo &lt;b&gt;Ada &amp; Bo</p>", r.HTML)

	r, err = all.Render("reset", "", json.RawMessage(`{"name":"<b>","link":"javascript:alert(1)"}`))
	require.NoError(t, err)
	require.NotContains(t, r.HTML, "javascript:")
}

func TestTextIsMadeOfHTML(t *testing.T) {
	t.Parallel()
	r, err := parsed(t, TemplateOptions{}).Render("reset", "", json.RawMessage(`{"name":"Ada","link":"https://x.example/?a=1&b=2"}`))
	require.NoError(t, err)
	require.Equal(t, "Hi Ada, reset ( https://x.example/?a=1&b=2 ).\n\nShop\n", r.Text)
	require.Contains(t, r.HTML, "<p>Shop</p>", "layout and partial")
}

func TestCSSIsInlinedOnRequest(t *testing.T) {
	t.Parallel()
	data := json.RawMessage(`{"name":"Ada","link":"https://x.example/?a=1&b=2"}`)
	plain, err := parsed(t, TemplateOptions{}).Render("reset", "", data)
	require.NoError(t, err)
	require.NotContains(t, plain.HTML, `style="`)
	all := parsed(t, TemplateOptions{InlineCSS: true})
	first, err := all.Render("reset", "", data)
	require.NoError(t, err)
	require.Contains(t, first.HTML, `<p style="color:red">Hi Ada`)
	require.Contains(t, first.HTML, "@media print")
	for range 20 {
		again, err := all.Render("reset", "", data)
		require.NoError(t, err)
		require.Equal(t, first, again)
	}
}

func TestMissingDataIsAnErrorThatHoldsNoData(t *testing.T) {
	t.Parallel()
	all := parsed(t, TemplateOptions{})
	for _, data := range []string{``, `{}`, `{"link":"private-link"}`, `{"name":null,"link":"private-link"}`, `[]`, `null`, `{"name":`} {
		raw := json.RawMessage(data)
		if data == "" {
			raw = nil
		}
		_, err := all.Render("reset", "de", raw)
		require.Error(t, err, data)
		require.NotContains(t, err.Error(), "private-link")
		require.NotContains(t, err.Error(), absentMark)
	}
	_, err := all.Render("reset", "de", json.RawMessage(`{"name":"Ada\r\nBcc: x@y.example","link":"l"}`))
	require.ErrorContains(t, err, "control character", "a subject can't add fields")
}

func TestNumbersAndNullsAreWhatPeopleExpect(t *testing.T) {
	t.Parallel()
	all := parsed(t, TemplateOptions{})
	r, err := all.Render("invoices/paid", "en-GB", all.Sample("invoices/paid", "en"))
	require.NoError(t, err)
	require.Equal(t, Rendered{Subject: "Paid 1234567", Text: "1;2.5;x;"}, r)
}

func TestEveryBrokenFileIsNamedAtTheStart(t *testing.T) {
	t.Parallel()
	for problem, change := range map[string]map[string]string{
		"reset/de/body.txt":          {"reset/de/body.txt": "{{.name"},
		"_shared/layout.html":        {"_shared/layout.html": "{{end}}"},
		"reset/fr has neither":       {"reset/fr/subject.txt": "s"},
		"the locale de-at twice":     {"x/de-at/subject.txt": "s", "x/de-at/body.txt": "t", "x/DE_AT/subject.txt": "s", "x/DE_AT/body.txt": "t"},
		"subject.txt is not in":      {"weird name/de/subject.txt": "s", "weird name/de/body.txt": "s"},
		"function \"nothing\" not d": {"reset/de/subject.txt": "{{nothing}}"},
	} {
		files := resets()
		for name, text := range change {
			files[name] = text
		}
		_, err := ParseTemplates(tree(files), TemplateOptions{})
		require.ErrorContains(t, err, strings.TrimPrefix(problem, "subject.txt "), fmt.Sprint(change))
	}
	_, err := ParseTemplates(tree(nil), TemplateOptions{})
	require.ErrorContains(t, err, "there is no TEMPLATE/LOCALE/subject.txt")
}
