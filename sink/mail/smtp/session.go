package smtp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	gosmtp "github.com/wneessen/go-mail/smtp"
)

// session is one connection to the server, ready for a mail. It is used by one
// goroutine at a time.
type session struct {
	conn   net.Conn // beneath TLS: its deadline holds for that too
	client *gosmtp.Client
	mails  int
	// limit is the server's limit of a mail in bytes (RFC 1870), 0 for none.
	limit int
	// reset: the last mail was taken whole, so that the next may begin at once.
	reset bool
	// idle closes the session when nobody uses it.
	idle *time.Timer
}

// open connects, up to and including authentication. Its error is about the
// server as a whole.
func (t *Transport) open(ctx context.Context) (_ *session, err error) {
	ctx, cancel := context.WithTimeout(ctx, t.cfg.ConnectTimeout)
	defer cancel()
	conn, err := t.cfg.Dial(ctx, "tcp", net.JoinHostPort(t.cfg.Host, strconv.Itoa(t.cfg.Port)))
	if err != nil {
		return nil, fmt.Errorf("connecting to the SMTP server: %w", err)
	}
	defer func() {
		if err != nil {
			_ = conn.Close()
		}
	}()
	s := &session{conn: conn}
	release := s.within(ctx)
	defer release()

	over := conn
	if t.cfg.Security == TLS {
		secure := tls.Client(conn, t.cfg.TLSConfig)
		if err := secure.HandshakeContext(ctx); err != nil {
			return nil, fmt.Errorf("starting TLS with the SMTP server: %w", err)
		}
		over = secure
	}
	if s.client, err = gosmtp.NewClient(over, t.cfg.Host); err != nil {
		return nil, fmt.Errorf("reading the SMTP server's greeting: %w", tidy(err))
	}
	if err := s.client.Hello(t.cfg.Hello); err != nil {
		return nil, fmt.Errorf("greeting the SMTP server: %w", tidy(err))
	}
	if t.cfg.Security == StartTLS {
		if ok, _ := s.client.Extension("STARTTLS"); !ok {
			return nil, errors.New("the SMTP server doesn't offer STARTTLS")
		}
		if err := s.client.StartTLS(t.cfg.TLSConfig); err != nil {
			return nil, fmt.Errorf("starting TLS with the SMTP server: %w", tidy(err))
		}
	}
	if t.cfg.Username != "" {
		if err := t.authenticate(ctx, s.client); err != nil {
			return nil, err
		}
	}
	if ok, size := s.client.Extension("SIZE"); ok {
		s.limit, _ = strconv.Atoi(strings.TrimSpace(size))
	}
	return s, nil
}

// authenticate tells of a failure no more than its code: what the server says
// may repeat what it was sent.
func (t *Transport) authenticate(ctx context.Context, c *gosmtp.Client) error {
	secret := t.cfg.Password
	if t.cfg.Token != nil {
		var err error
		if secret, err = t.cfg.Token(ctx); err != nil {
			return errors.New("getting an access token for the SMTP server failed")
		}
	}
	plain := isLoopback(t.cfg.Host) // Validate refuses it elsewhere
	var auth gosmtp.Auth
	switch t.cfg.Mechanism {
	case Login:
		auth = gosmtp.LoginAuth(t.cfg.Username, secret, t.cfg.Host, plain)
	case CRAMMD5:
		auth = gosmtp.CRAMMD5Auth(t.cfg.Username, secret)
	case XOAuth2:
		auth = gosmtp.XOAuth2Auth(t.cfg.Username, secret)
	default:
		auth = gosmtp.PlainAuth("", t.cfg.Username, secret, t.cfg.Host, plain)
	}
	if ok, _ := c.Extension("AUTH"); !ok {
		return errors.New("the SMTP server doesn't offer authentication")
	}
	err := c.Auth(auth)
	if err == nil {
		return nil
	}
	if answer, ok := answerOf(err); ok {
		return fmt.Errorf("authenticating by %s: the SMTP server answered %d %s", t.cfg.Mechanism, answer.code, answer.enhanced)
	}
	if isLost(err) {
		return fmt.Errorf("authenticating by %s: the connection to the SMTP server was lost", t.cfg.Mechanism)
	}
	return fmt.Errorf("authenticating by %s failed", t.cfg.Mechanism)
}

// past is a deadline that ends every call.
var past = time.Unix(1, 0)

// within bounds all that the session does by ctx until release is called, which
// tells whether ctx has not ended: after that the session is of no use.
func (s *session) within(ctx context.Context) (release func() (usable bool)) {
	deadline, _ := ctx.Deadline()
	_ = s.conn.SetDeadline(deadline)
	return context.AfterFunc(ctx, func() { _ = s.conn.SetDeadline(past) })
}

// quitTimeout is how long a server may take to say goodbye.
const quitTimeout = 200 * time.Millisecond

// quit says goodbye and closes.
func (s *session) quit() {
	_ = s.conn.SetDeadline(time.Now().Add(quitTimeout))
	_ = s.client.Quit()
	s.close()
}

// close closes without a word: the server drops a mail that isn't complete.
func (s *session) close() { _ = s.conn.Close() }
