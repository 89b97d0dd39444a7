package mail

import (
	"errors"
	"fmt"
	htmltemplate "html/template"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	texttemplate "text/template"
)

// Names of the files of a template, and of the folders beside them.
const (
	subjectFile = "subject.txt"
	textFile    = "body.txt"
	htmlFile    = "body.html"
	sampleFile  = "sample.json"
	sharedDir   = "_shared"
	// defaultLocale is the folder that every template falls back to.
	defaultLocale = "default"
)

// Templates are the mail templates of a file system, all parsed. Several
// goroutines may render at once.
//
// A template is a folder, its name the path: it holds a folder for each locale,
// such as "de" or "de-AT", and may hold one called "default", that others fall
// back to. A locale's folder holds subject.txt and body.html or body.txt or both;
// subject.txt and body.txt are in the language of text/template, body.html in
// that of html/template, which escapes data where it stands. What they have in
// common, such as layouts and partials, is defined in files below a folder
// _shared at the top: *.html for HTML and *.txt for text. A block that a template
// defines replaces the shared one.
//
// sample.json, in the template's folder or a locale's, is data to try it with.
type Templates struct {
	options TemplateOptions
	byName  map[string]map[string]*localized
	samples map[string][]byte // by folder
}

// TemplateOptions are how mails are made of templates. The zero value is useful.
type TemplateOptions struct {
	// InlineCSS moves the rules of <style> into the elements that they are for,
	// since some readers drop <style>. Defaults to false.
	InlineCSS bool
	// Funcs are functions that templates may call. Defaults to none but the
	// built-in ones.
	Funcs map[string]any
}

// localized is a template in one language.
type localized struct {
	subject, text *texttemplate.Template
	html          *htmltemplate.Template
}

// missingKey makes a template fail at data that isn't there.
const missingKey = "missingkey=error"

// ParseTemplates reads and parses all templates below the root of files. The
// error tells every file that can't be parsed.
func ParseTemplates(files fs.FS, options TemplateOptions) (*Templates, error) {
	t := &Templates{options: options, byName: map[string]map[string]*localized{}, samples: map[string][]byte{}}
	sharedText := texttemplate.New("shared").Option(missingKey).Funcs(options.Funcs)
	sharedHTML := htmltemplate.New("shared").Option(missingKey).Funcs(options.Funcs)
	var folders []string
	var errs []error
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != "." && strings.HasPrefix(entry.Name(), "."):
			return fs.SkipDir
		case entry.IsDir():
			return nil
		case name == sharedDir+"/"+entry.Name() || strings.HasPrefix(name, sharedDir+"/"):
			errs = append(errs, parseShared(files, name, sharedText, sharedHTML))
		case entry.Name() == subjectFile:
			folders = append(folders, path.Dir(name))
		case entry.Name() == sampleFile:
			text, err := fs.ReadFile(files, name)
			if err != nil {
				return err
			}
			t.samples[path.Dir(name)] = text
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading mail templates: %w", err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("parsing mail templates: %w", err)
	}
	for _, folder := range folders {
		errs = append(errs, t.parse(files, folder, sharedText, sharedHTML))
	}
	if len(folders) == 0 {
		errs = append(errs, fmt.Errorf("there is no TEMPLATE/LOCALE/%s", subjectFile))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("parsing mail templates: %w", err)
	}
	return t, nil
}

func parseShared(files fs.FS, name string, text *texttemplate.Template, html *htmltemplate.Template) error {
	source, err := fs.ReadFile(files, name)
	if err != nil {
		return err
	}
	switch path.Ext(name) {
	case ".txt":
		_, err = text.New(name).Parse(string(source))
	case ".html":
		_, err = html.New(name).Parse(string(source))
	}
	return err
}

// parse reads one locale of one template.
func (t *Templates) parse(files fs.FS, folder string, sharedText *texttemplate.Template, sharedHTML *htmltemplate.Template) error {
	name, locale := path.Dir(folder), path.Base(folder)
	if !isTemplateName(name) || !isLocale(locale) {
		return fmt.Errorf("%s is not in TEMPLATE/LOCALE: letters, digits, - and _", folder)
	}
	texts := func(file string) (*texttemplate.Template, error) {
		source, err := fs.ReadFile(files, folder+"/"+file)
		if err != nil {
			return nil, err
		}
		shared, err := sharedText.Clone()
		if err != nil {
			return nil, err
		}
		return shared.New(folder + "/" + file).Parse(string(source))
	}
	one := &localized{}
	var err error
	if one.subject, err = texts(subjectFile); err != nil {
		return err
	}
	if one.text, err = texts(textFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	source, err := fs.ReadFile(files, folder+"/"+htmlFile)
	if err == nil {
		shared, err := sharedHTML.Clone()
		if err != nil {
			return err
		}
		if one.html, err = shared.New(folder + "/" + htmlFile).Parse(string(source)); err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if one.html == nil && one.text == nil {
		return fmt.Errorf("%s has neither %s nor %s", folder, htmlFile, textFile)
	}
	if t.byName[name] == nil {
		t.byName[name] = map[string]*localized{}
	}
	key := foldLocale(locale)
	if t.byName[name][key] != nil {
		return fmt.Errorf("%s has the locale %s twice: case, - and _ make no difference", name, locale)
	}
	t.byName[name][key] = one
	return nil
}

// foldLocale is the form in which locales are compared.
func foldLocale(locale string) string { return strings.ToLower(strings.ReplaceAll(locale, "_", "-")) }

// Names lists the templates, in order.
func (t *Templates) Names() []string { return slices.Sorted(maps.Keys(t.byName)) }

// Locales lists those of a template, in order, in lower case with "-".
func (t *Templates) Locales(name string) []string { return slices.Sorted(maps.Keys(t.byName[name])) }

// Sample returns the data to try a template with: its locale's, or its own, or
// nil.
func (t *Templates) Sample(name, locale string) []byte {
	var own []byte
	for folder, sample := range t.samples {
		if folder == name {
			own = sample
		}
		if path.Dir(folder) == name && foldLocale(path.Base(folder)) == foldLocale(locale) {
			return sample
		}
	}
	return own
}

// find picks the language: de-AT, then de, then default.
func (t *Templates) find(name, locale string) (*localized, error) {
	locales := t.byName[name]
	if locales == nil {
		return nil, fmt.Errorf("there is no template %q", name)
	}
	for key := foldLocale(locale); key != ""; {
		if one := locales[key]; one != nil {
			return one, nil
		}
		cut := strings.LastIndexByte(key, '-')
		key = key[:max(cut, 0)]
	}
	if one := locales[defaultLocale]; one != nil {
		return one, nil
	}
	return nil, fmt.Errorf("template %q has neither the locale %q nor a default", name, locale)
}
