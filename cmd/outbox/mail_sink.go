package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/config"
	mailsink "github.com/gooutbox/outbox/sink/mail"
	"github.com/gooutbox/outbox/sink/mail/folder"
	"github.com/gooutbox/outbox/sink/mail/smtp"
)

// mailOptions is a sink of type mail in a configuration. Its ledger and its list
// of suppressed addresses are the store's.
type mailOptions struct {
	From        string          `yaml:"from"`
	Sender      string          `yaml:"sender"`
	Templates   string          `yaml:"templates"`
	InlineCSS   bool            `yaml:"inline_css"`
	OnUnknown   string          `yaml:"on_unknown" enum:"hold,resend"`
	SendTimeout config.Duration `yaml:"send_timeout" min:"1s"`
	MaxBytes    config.Size     `yaml:"max_bytes"`
	// One of these carries the mails.
	SMTP   *smtpOptions   `yaml:"smtp"`
	Folder *folderOptions `yaml:"folder"`
}

type folderOptions struct {
	Path string `yaml:"path,required"`
}

type smtpOptions struct {
	Host           string          `yaml:"host,required"`
	Port           int             `yaml:"port" min:"1"`
	Security       string          `yaml:"security" enum:"starttls,tls,none"`
	Username       string          `yaml:"username"`
	Password       config.Secret   `yaml:"password"`
	Mechanism      string          `yaml:"mechanism" enum:"plain,login,cram-md5,xoauth2"`
	Hello          string          `yaml:"hello"`
	ConnectTimeout config.Duration `yaml:"connect_timeout" min:"100ms"`
	MaxConnections int             `yaml:"max_connections" min:"1"`
	MaxMails       int             `yaml:"max_mails" min:"1"`
	IdleTimeout    config.Duration `yaml:"idle_timeout" min:"1s"`
	TLS            *tlsOptions     `yaml:"tls"`
}

func newMailOptions() *mailOptions {
	return &mailOptions{
		OnUnknown: string(mailsink.Hold), SendTimeout: config.Duration(mailsink.DefaultSendTimeout),
		MaxBytes: config.Size(mailsink.DefaultMaxBytes),
	}
}

// SetDefaults fills in what a configuration leaves out.
func (o *smtpOptions) SetDefaults() {
	*o = smtpOptions{
		Security: string(smtp.StartTLS), ConnectTimeout: config.Duration(smtp.DefaultConnectTimeout),
		MaxConnections: smtp.DefaultMaxConnections, MaxMails: smtp.DefaultMaxMails, IdleTimeout: config.Duration(smtp.DefaultIdleTimeout),
	}
}

// mailFields and smtpFields tell where the fields stand in a configuration.
var (
	mailFields = map[string]string{"From": "from", "Sender": "sender", "OnUnknown": "on_unknown", "SendTimeout": "send_timeout", "MaxBytes": "max_bytes"}
	smtpFields = map[string]string{
		"Host": "host", "Port": "port", "Security": "security", "Username": "username", "Password": "password", "Mechanism": "mechanism",
		"Hello": "hello", "ConnectTimeout": "connect_timeout", "MaxConnections": "max_connections", "MaxMails": "max_mails", "IdleTimeout": "idle_timeout",
	}
)

// Validate refuses what the sink and its transport would refuse.
func (o *mailOptions) Validate(report config.Report) {
	if (o.SMTP == nil) == (o.Folder == nil) {
		report("", "needs one of smtp and folder")
	}
	cfg := o.sink()
	for _, err := range eachOf(cfg.Validate()) {
		field, problem, _ := strings.Cut(err.Error(), " ")
		if at, ok := mailFields[field]; ok { // the rest is not of the configuration
			report(at, problem)
		}
	}
	if o.SMTP == nil {
		return
	}
	if o.SMTP.TLS != nil {
		o.SMTP.TLS.validate("smtp.tls", report)
	}
	transport := o.SMTP.config()
	if transport.Host == "" {
		transport.Host = "localhost" // reported as missing
	}
	for _, err := range eachOf(transport.Validate()) {
		field, problem, _ := strings.Cut(err.Error(), " ")
		report("smtp."+smtpFields[field], problem)
	}
}

func (o *mailOptions) sink() mailsink.Config {
	return mailsink.Config{
		From: o.From, Sender: o.Sender, OnUnknown: mailsink.UnknownPolicy(o.OnUnknown),
		SendTimeout: time.Duration(o.SendTimeout), MaxBytes: int(o.MaxBytes),
	}
}

func (o *smtpOptions) config() smtp.Config {
	return smtp.Config{
		Host: o.Host, Port: o.Port, Security: smtp.Security(o.Security), Username: o.Username, Password: o.Password.Reveal(),
		Mechanism: smtp.Mechanism(o.Mechanism), Hello: o.Hello, ConnectTimeout: time.Duration(o.ConnectTimeout),
		MaxConnections: o.MaxConnections, MaxMails: o.MaxMails, IdleTimeout: time.Duration(o.IdleTimeout),
	}
}

func (o *mailOptions) transport() (mailsink.Transport, error) {
	if o.Folder != nil {
		return folder.New(o.Folder.Path)
	}
	cfg := o.SMTP.config()
	var err error
	if cfg.TLSConfig, err = o.SMTP.TLS.config(); err != nil {
		return nil, fmt.Errorf("setting up smtp.tls: %w", err)
	}
	return smtp.New(cfg)
}

// mailKeeper is a store that also remembers mails.
type mailKeeper interface {
	core.Queue
	mailLedger() (mailsink.Ledger, error)
	mailSuppressions() (mailsink.SuppressionList, error)
	// ensureMailIndexes makes the indexes of both, or with dryRun only says so, one
	// line for each thing.
	ensureMailIndexes(ctx context.Context, dryRun bool) ([]string, error)
}

var (
	// errNoMails is a store that can't keep what mails need, errNoStore one that
	// could not be opened.
	errNoMails = errors.New("this kind of store keeps no mails: sinks of type mail need mongodb")
	errNoStore = errors.New("the store could not be opened, and it keeps what is known of mails")
)

func (o *mailOptions) open(p parts) (core.Sink, error) {
	if p.store == nil {
		return nil, errNoStore
	}
	keeper, ok := p.store.(mailKeeper)
	if !ok {
		return nil, errNoMails
	}
	cfg := o.sink()
	var err error
	if cfg.Ledger, err = keeper.mailLedger(); err != nil {
		return nil, err
	}
	if cfg.Suppressions, err = keeper.mailSuppressions(); err != nil {
		return nil, err
	}
	cfg.Pauses = keeper
	if o.Templates != "" {
		if cfg.Templates, err = mailsink.ParseTemplates(os.DirFS(o.Templates), mailsink.TemplateOptions{InlineCSS: o.InlineCSS}); err != nil {
			return nil, err
		}
	}
	if cfg.Transport, err = o.transport(); err != nil {
		return nil, err
	}
	return mailsink.New(cfg)
}

// keepsMails tells whether a sink of the configuration is of type mail.
func keepsMails(file *config.File) bool {
	for _, sink := range file.Sinks {
		if _, ok := sink.Options.(*mailOptions); ok {
			return true
		}
	}
	return false
}

// reservations is what the relay asks about mails whose worker died; nil where no
// sink is of type mail.
func reservations(file *config.File, s store) (core.Reservations, error) {
	keeper, ok := s.(mailKeeper)
	if !ok || !keepsMails(file) {
		return nil, nil
	}
	return keeper.mailLedger()
}
