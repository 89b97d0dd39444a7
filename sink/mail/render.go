package mail

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/inbucket/html2text"
	"github.com/vanng822/go-premailer/premailer"
)

// Rendered is what a template makes of data.
type Rendered struct {
	Subject string
	// Text and HTML are the bodies. Text is made from HTML where the template has
	// none; HTML is empty where it has none.
	Text, HTML string
}

// Render makes a mail's content in the best language that the template has for
// the locale. Data is a JSON object; nil is an empty one. Data that a template
// needs and doesn't get is an error, which names it and holds no data.
func (t *Templates) Render(name, locale string, data json.RawMessage) (Rendered, error) {
	one, err := t.find(name, locale)
	if err != nil {
		return Rendered{}, err
	}
	values := map[string]any{}
	if data != nil {
		if values, err = decodeData(data); err != nil {
			return Rendered{}, fmt.Errorf("rendering template %q: the data %w", name, err)
		}
	}
	r, err := t.render(one, values)
	if err != nil {
		return Rendered{}, fmt.Errorf("rendering template %q: %w", name, err)
	}
	return r, nil
}

func (t *Templates) render(one *localized, values map[string]any) (r Rendered, err error) {
	subject, err := execute(one.subject.Execute, values)
	if err != nil {
		return r, err
	}
	r.Subject = strings.TrimSpace(subject)
	if r.Subject == "" {
		return r, errors.New("the subject is empty")
	}
	if problem := controlIn(r.Subject, ""); problem != "" {
		return r, fmt.Errorf("the subject %s", problem)
	}
	if one.html != nil {
		if r.HTML, err = execute(one.html.Execute, values); err != nil {
			return r, err
		}
		if t.options.InlineCSS {
			if r.HTML, err = inlineCSS(r.HTML); err != nil {
				return r, err
			}
		}
	}
	if one.text != nil {
		r.Text, err = execute(one.text.Execute, values)
	} else {
		r.Text, err = textOf(r.HTML)
	}
	return r, err
}

// execute runs one template.
func execute(run func(io.Writer, any) error, values map[string]any) (string, error) {
	var buf bytes.Buffer
	if err := run(&buf, values); err != nil {
		return "", err
	}
	if bytes.Contains(buf.Bytes(), []byte(absentMark)) {
		return "", errors.New("it prints a value that is null: ask for it by if")
	}
	if problem := controlIn(buf.String(), inBody); problem != "" {
		return "", fmt.Errorf("what it prints %s", problem)
	}
	return buf.String(), nil
}

// textOf makes plain text of HTML.
func textOf(html string) (string, error) {
	text, err := html2text.FromString(html)
	if err != nil {
		return "", fmt.Errorf("making text of HTML: %w", err)
	}
	return text + "\n", nil
}

// inlineCSS moves rules of <style> to their elements; such as can't be moved, for
// media or hovering, stay.
func inlineCSS(html string) (string, error) {
	options := premailer.NewOptions()
	options.RemoveClasses = false
	p, err := premailer.NewPremailerFromString(html, options)
	if err != nil {
		return "", fmt.Errorf("inlining CSS: %w", err)
	}
	inlined, err := p.Transform()
	if err != nil {
		return "", fmt.Errorf("inlining CSS: %w", err)
	}
	return inlined, nil
}
