// Package smtpscript is an SMTP server for tests that answers by a script: for
// faults that a real one doesn't produce on demand.
package smtpscript

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/textproto"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Answers that are no reply.
const (
	// Drop closes the connection without a word.
	Drop = "\x00drop"
	// Hang answers nothing until the server is closed.
	Hang = "\x00hang"
	// DropInside, for "DATA" only, asks for the mail, reads some of it, and drops.
	DropInside = "\x00drop-inside"
	// Late answers "250" after Release was called.
	Late = "\x00late"
)

// Server is a scripted server. Its methods may be called by several goroutines at
// once.
type Server struct {
	// Port it listens on, at 127.0.0.1.
	Port int

	listener net.Listener
	ended    chan struct{}
	release  chan struct{}
	wg       sync.WaitGroup

	mu       sync.Mutex
	script   map[string][]string
	ehlo     []string
	sessions int
	conns    map[net.Conn]bool
	commands []string
	bodies   []Body
	refused  map[string]bool
}

// Body is one mail that the server read up to its dot.
type Body struct {
	From string
	To   []string
	Text string
}

// Start starts a server that says yes to everything but what the script says. A
// script holds answers by the verb that they answer: "GREET" for the greeting,
// "DOT" for the end of a mail, and the commands' own. The first answer is for the
// first occurrence and so on; "" is the usual one. Close is called by t.Cleanup.
func Start(t testing.TB, script map[string][]string) *Server {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{
		Port: listener.Addr().(*net.TCPAddr).Port, listener: listener, ended: make(chan struct{}), release: make(chan struct{}),
		script: map[string][]string{}, conns: map[net.Conn]bool{}, ehlo: []string{"scripted", "8BITMIME", "AUTH PLAIN LOGIN CRAM-MD5 XOAUTH2"},
	}
	for verb, answers := range script {
		s.script[verb] = slices.Clone(answers)
	}
	s.wg.Go(s.accept)
	t.Cleanup(s.Close)
	return s
}

// Offer adds an extension to what EHLO answers.
func (s *Server) Offer(extension string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ehlo = append(s.ehlo, extension)
}

// Next lets the next answer to a verb be another. used tells whether it was given;
// if not, it is taken back.
func (s *Server) Next(verb, answer string) (used func() bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script[verb] = []string{answer}
	return func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		given := len(s.script[verb]) == 0
		s.script[verb] = nil
		return given
	}
}

// Refuse makes the server answer 450 for a recipient, or take it again.
func (s *Server) Refuse(address string, refuse bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refused == nil {
		s.refused = map[string]bool{}
	}
	s.refused[address] = refuse
}

func (s *Server) refuses(address string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused[address]
}

// Release lets what is Late answer.
func (s *Server) Release() { close(s.release) }

// Close ends the server and its connections.
func (s *Server) Close() {
	select {
	case <-s.ended:
		return
	default:
	}
	close(s.ended)
	_ = s.listener.Close()
	s.CloseSessions()
	s.wg.Wait()
}

// CloseSessions closes all connections, as a server does with idle ones.
func (s *Server) CloseSessions() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn := range s.conns {
		_ = conn.Close()
	}
}

// Bodies lists the mails that were read up to their dot.
func (s *Server) Bodies() []Body {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.bodies)
}

// Sessions counts connections.
func (s *Server) Sessions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions
}

// Commands lists what was asked, without AUTH's secrets.
func (s *Server) Commands() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.commands)
}

func (s *Server) accept() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.sessions++
		s.conns[conn] = true
		s.mu.Unlock()
		s.wg.Go(func() {
			defer func() {
				s.mu.Lock()
				delete(s.conns, conn)
				s.mu.Unlock()
				_ = conn.Close()
			}()
			session := session{server: s, conn: conn, r: textproto.NewReader(bufio.NewReader(conn))}
			session.run()
		})
	}
}

// next takes the script's next answer.
func (s *Server) next(verb, usual string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	answers := s.script[verb]
	if len(answers) == 0 {
		return usual
	}
	s.script[verb] = answers[1:]
	if answers[0] == "" {
		return usual
	}
	return answers[0]
}

type session struct {
	server *Server
	conn   net.Conn
	r      *textproto.Reader
	from   string
	to     []string
}

var errEnd = errors.New("the session ends")

func (s *session) run() {
	if s.answer("GREET", "220 scripted ESMTP") != nil {
		return
	}
	for {
		line, err := s.r.ReadLine()
		if err != nil {
			return
		}
		verb, rest, _ := strings.Cut(line, " ")
		verb = strings.ToUpper(verb)
		s.note(verb, rest)
		if s.command(verb, rest) != nil {
			return
		}
	}
}

func (s *session) note(verb, rest string) {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	if verb == "AUTH" {
		rest, _, _ = strings.Cut(rest, " ")
	}
	s.server.commands = append(s.server.commands, strings.TrimSpace(verb+" "+rest))
}

func (s *session) command(verb, rest string) error {
	switch verb {
	case "EHLO":
		s.server.mu.Lock()
		lines := slices.Clone(s.server.ehlo)
		s.server.mu.Unlock()
		for i := range lines {
			sep := "-"
			if i == len(lines)-1 {
				sep = " "
			}
			lines[i] = "250" + sep + lines[i]
		}
		return s.answer(verb, strings.Join(lines, "\r\n"))
	case "AUTH":
		return s.authenticate(rest)
	case "MAIL":
		s.from, s.to = bracketed(rest), nil
		return s.answer(verb, "250 2.1.0 ok")
	case "RCPT":
		usual := "250 2.1.5 ok"
		if s.server.refuses(bracketed(rest)) {
			usual = "450 4.2.1 mailbox busy"
		}
		reply := s.server.next(verb, usual)
		if strings.HasPrefix(reply, "2") {
			s.to = append(s.to, bracketed(rest))
		}
		return s.say(reply)
	case "DATA":
		return s.data()
	case "QUIT":
		_ = s.answer(verb, "221 bye")
		return errEnd
	case "RSET", "NOOP":
		return s.answer(verb, "250 ok")
	}
	return s.answer(verb, "502 not implemented")
}

// authenticate takes any secret, in as many rounds as the mechanism has.
func (s *session) authenticate(rest string) error {
	mechanism, initial, _ := strings.Cut(rest, " ")
	rounds := map[string][]string{
		"LOGIN": {"334 VXNlcm5hbWU6", "334 UGFzc3dvcmQ6"}, "CRAM-MD5": {"334 PDEyMzQ1QHRlc3Q+"},
	}[strings.ToUpper(mechanism)]
	for _, ask := range rounds {
		if err := s.say(ask); err != nil {
			return err
		}
		if _, err := s.r.ReadLine(); err != nil {
			return err
		}
	}
	_ = initial
	return s.answer("AUTH", "235 2.7.0 ok")
}

func (s *session) data() error {
	reply := s.server.next("DATA", "354 go on")
	if reply == DropInside {
		if err := s.say("354 go on"); err != nil {
			return err
		}
		_, _ = io.CopyN(io.Discard, s.r.R, 100)
		return errEnd
	}
	if err := s.say(reply); err != nil || !strings.HasPrefix(reply, "354") {
		return err
	}
	text, err := s.r.ReadDotBytes()
	if err != nil {
		return err
	}
	s.server.mu.Lock()
	s.server.bodies = append(s.server.bodies, Body{From: s.from, To: s.to, Text: string(text)})
	s.server.mu.Unlock()
	return s.answer("DOT", "250 2.0.0 queued as 7F3A")
}

func (s *session) answer(verb, usual string) error { return s.say(s.server.next(verb, usual)) }

func (s *session) say(reply string) error {
	switch reply {
	case Drop:
		return errEnd
	case Hang:
		<-s.server.ended
		return errEnd
	case Late:
		select {
		case <-s.server.ended:
			return errEnd
		case <-s.server.release:
		}
		reply = "250 2.0.0 late"
	}
	_ = s.conn.SetWriteDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.WriteString(s.conn, reply+"\r\n"); err != nil {
		return err
	}
	if strings.HasPrefix(reply, "421") {
		return errEnd
	}
	return nil
}

// bracketed is what stands between < and >.
func bracketed(s string) string {
	_, s, _ = strings.Cut(s, "<")
	s, _, _ = strings.Cut(s, ">")
	return s
}
