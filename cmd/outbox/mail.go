package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	mailsink "github.com/gooutbox/outbox/sink/mail"
)

func (p *program) mailCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "mail",
		Short: "Try mail templates, and decide about mails of unknown outcome",
		Long:  "Mail has commands for the templates of sinks of type mail, see docs/mail.md.",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(p.mailPreviewCommand(), p.mailCheckCommand(), p.mailResolveCommand())
	for _, sub := range cmd.Commands() {
		refuse := sub.Args
		sub.Args = func(cmd *cobra.Command, args []string) error {
			if err := refuse(cmd, args); err != nil {
				return &usageError{fmt.Errorf("%w; outbox mail --help lists the commands", err)}
			}
			return nil
		}
	}
	return cmd
}

// templateFlags are those of commands that work on a folder of templates.
type templateFlags struct {
	dir       *string
	inlineCSS *bool
}

func newTemplateFlags(cmd *cobra.Command) templateFlags {
	return templateFlags{
		dir:       cmd.Flags().String("templates", "templates", "`folder` of the templates"),
		inlineCSS: cmd.Flags().Bool("inline-css", false, "move the rules of <style> into the elements, as a sink with inline_css does"),
	}
}

// parse reads all templates. A folder that isn't there is a wrong argument.
func (f templateFlags) parse() (*mailsink.Templates, error) {
	if _, err := os.Stat(*f.dir); errors.Is(err, fs.ErrNotExist) {
		return nil, &usageError{fmt.Errorf("there is no folder %s: name it with --templates", *f.dir)}
	}
	return mailsink.ParseTemplates(os.DirFS(*f.dir), mailsink.TemplateOptions{InlineCSS: *f.inlineCSS})
}

func (p *program) mailPreviewCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "preview TEMPLATE",
		Short: "Write what a mail template makes of data",
		Long: "Preview renders a template and writes TEMPLATE.html, where it has HTML, and TEMPLATE.txt, which begins with\n" +
			"the subject. Without --data it takes the template's own sample.json. Nothing is sent.",
		Example: "  outbox mail preview password-reset --templates templates --locale de --data ada.json --out /tmp",
		Args:    wants(1),
	}
	flags := newTemplateFlags(cmd)
	data := cmd.Flags().String("data", "", "JSON `file` with the data")
	locale := cmd.Flags().String("locale", "", "language, such as de-AT")
	out := cmd.Flags().String("out", ".", "`folder` to write into")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		name := args[0]
		templates, err := flags.parse()
		if err != nil {
			return err
		}
		if !slices.Contains(templates.Names(), name) {
			return &usageError{fmt.Errorf("there is no template %q in %s", name, *flags.dir)}
		}
		input := templates.Sample(name, *locale)
		if *data != "" {
			if input, err = os.ReadFile(*data); err != nil {
				return &usageError{fmt.Errorf("reading the data: %w", err)}
			}
		}
		mail, err := templates.Render(name, *locale, json.RawMessage(input))
		if err != nil {
			return err
		}
		base := filepath.Join(*out, filepath.Base(name))
		files := []struct{ path, text string }{{base + ".txt", "Subject: " + mail.Subject + "\n\n" + mail.Text}}
		if mail.HTML != "" {
			files = append(files, struct{ path, text string }{base + ".html", mail.HTML})
		}
		for _, file := range files {
			if err := os.WriteFile(file.path, []byte(file.text), 0o600); err != nil {
				return fmt.Errorf("writing the preview: %w", err)
			}
			if _, err := fmt.Fprintln(p.stdout, file.path); err != nil {
				return err
			}
		}
		return nil
	}
	return cmd
}

func (p *program) mailCheckCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Render every mail template with its sample data",
		Long: "Check parses all templates and renders each in each of its languages with its sample.json: with the one in\n" +
			"the language's folder, or else with the template's. It names all that fail, and ends with status 1 then.",
		Example: "  outbox mail check --templates templates",
		Args:    cobra.NoArgs,
	}
	flags := newTemplateFlags(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		templates, err := flags.parse()
		if err != nil {
			return err
		}
		var errs []error
		for _, name := range templates.Names() {
			for _, locale := range templates.Locales(name) {
				sample := templates.Sample(name, locale)
				if sample == nil {
					errs = append(errs, fmt.Errorf("%s has no sample.json", name))
					break
				}
				if _, err := templates.Render(name, locale, json.RawMessage(sample)); err != nil {
					errs = append(errs, fmt.Errorf("in %s: %w", locale, err))
					continue
				}
				if _, err := fmt.Fprintf(p.stdout, "%s %s: well\n", name, locale); err != nil {
					return err
				}
			}
		}
		return errors.Join(errs...)
	}
	return cmd
}
