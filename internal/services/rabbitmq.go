package services

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/rabbitmq/amqp091-go"
)

// RabbitMQConfig says which broker to start. The zero value is a broker that
// listens without TLS.
type RabbitMQConfig struct {
	// TLS makes clients connect by TLS. The broker's certificate, for
	// 127.0.0.1 and localhost, comes from an authority of this broker's own,
	// and so does one for clients: who shows it may log in as User without a
	// password, by the mechanism EXTERNAL.
	TLS bool

	// Settings are added to rabbitmq.conf, or replace what is there.
	Settings map[string]string

	// Port is the port for clients. Defaults to a free one.
	Port int
}

// RabbitMQ is a broker of one node. Clients log in as User with Password. Its
// methods may not be called concurrently.
type RabbitMQ struct {
	config  RabbitMQConfig
	program string // rabbitmq-server
	folder  *folder
	clients *port // for clients, as configured
	inner   *port // without TLS, for this package and for looking at what was sent
	node    *port // of the Erlang node, for rabbitmqctl
	process *process
}

// StartRabbitMQ starts a broker and returns when it answers. ctx bounds the
// start only. The caller must Close it.
func StartRabbitMQ(ctx context.Context, config RabbitMQConfig) (*RabbitMQ, error) {
	return startRabbitMQ(ctx, config, func() (*folder, error) { return newFolder(ctx, "rabbitmq") })
}

// HaveRabbitMQ tells whether the broker is there without installing it.
func HaveRabbitMQ(ctx context.Context) bool {
	_, err := rabbitMQ.find(ctx)
	return err == nil
}

func startRabbitMQ(ctx context.Context, config RabbitMQConfig, newFolder func() (*folder, error)) (*RabbitMQ, error) {
	program, err := rabbitMQ.provide(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := newFolder()
	if err != nil {
		return nil, err
	}
	r := &RabbitMQ{config: config, program: program, folder: dir}
	if err := r.prepare(); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	if err := r.Start(ctx); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// prepare makes everything that the broker finds at its start.
func (r *RabbitMQ) prepare() error {
	var err error
	if r.clients, err = reservePort(r.config.Port); err != nil {
		return err
	}
	if r.inner, err = reservePort(0); err != nil {
		return err
	}
	if r.node, err = reservePort(0); err != nil {
		return err
	}
	if r.config.TLS {
		if err := writeCertificates(r.folder); err != nil {
			return err
		}
	}
	for _, file := range []struct {
		name string
		text string
	}{{"rabbitmq.conf", r.settings()}, {"plugins", r.plugins()}, {"env", ""}} {
		if err := os.WriteFile(r.folder.file(file.name), []byte(file.text), 0o600); err != nil {
			return fmt.Errorf("writing RabbitMQ's %s: %w", file.name, err)
		}
	}
	return nil
}

// Start starts the broker on its old data and ports and returns when it answers.
func (r *RabbitMQ) Start(ctx context.Context) error {
	if r.process.running() {
		return fmt.Errorf("starting RabbitMQ %s: it is running", r.clients.address())
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	started, err := launch("rabbitmq", r.Log(), r.folder.lasting, "env", r.command(r.environment(), r.program, "-outbox_folder", r.folder.path)...)
	if err != nil {
		return err
	}
	r.process = started
	return started.await(ctx, func(ctx context.Context) error { return pingRabbitMQ(ctx, r.PlainURL()) })
}

// pingRabbitMQ returns an error without secrets if no broker answers there and
// lets us log in.
func pingRabbitMQ(ctx context.Context, url string) error {
	if _, err := amqp091.ParseURI(url); err != nil {
		return errors.New("it is no address of RabbitMQ") // the client's words may quote a password
	}
	conn, err := amqp091.DialConfig(url, amqp091.Config{Dial: func(network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return conn, conn.SetDeadline(time.Now().Add(2 * time.Second))
	}})
	if err != nil {
		return fmt.Errorf("connecting to the broker: %w", err)
	}
	return conn.CloseDeadline(time.Now().Add(2 * time.Second))
}

// Ctl runs rabbitmqctl on the broker and returns what it printed.
func (r *RabbitMQ) Ctl(ctx context.Context, args ...string) (string, error) {
	return output(ctx, "env", r.command(r.ctlEnvironment(), r.ctl(), append([]string{"-q", "-n", r.nodeName()}, args...)...)...)
}

// URL returns the address that clients are given, with user and password.
func (r *RabbitMQ) URL() string {
	if r.config.TLS {
		return "amqps://" + User + ":" + Password + "@" + r.clients.address() + "/"
	}
	return "amqp://" + User + ":" + Password + "@" + r.clients.address() + "/"
}

// PlainURL returns an address that needs no TLS, whatever clients use, to look
// at what they sent.
func (r *RabbitMQ) PlainURL() string {
	return "amqp://" + User + ":" + Password + "@" + r.inner.address() + "/"
}

// Address returns host:port for clients.
func (r *RabbitMQ) Address() string { return r.clients.address() }

// CAFile returns the path of the authority's certificate (PEM). Empty without TLS.
func (r *RabbitMQ) CAFile() string { return r.certificate("ca.pem") }

// ClientFile returns the path of a key and a certificate (PEM) with which a
// client may log in as User. Empty without TLS.
func (r *RabbitMQ) ClientFile() string { return r.certificate("client.pem") }

func (r *RabbitMQ) certificate(name string) string {
	if !r.config.TLS {
		return ""
	}
	return r.folder.file(name)
}

// Log returns the path of the broker's log.
func (r *RabbitMQ) Log() string { return r.folder.file("log") }

// Kill ends the broker without notice (SIGKILL).
func (r *RabbitMQ) Kill() {
	if r.process != nil {
		r.process.kill()
	}
}

// Stop ends the broker in an orderly way. The data stays for Start.
func (r *RabbitMQ) Stop() error {
	if r.process == nil {
		return nil
	}
	return r.process.stop()
}

// Restart stops the broker in an orderly way and starts it again.
func (r *RabbitMQ) Restart(ctx context.Context) error {
	if err := r.Stop(); err != nil {
		return err
	}
	return r.Start(ctx)
}

// Pause freezes the broker (SIGSTOP): its connections stay open and nothing
// answers.
func (r *RabbitMQ) Pause() error { return r.process.signal(syscall.SIGSTOP) }

// Resume lets a paused broker go on.
func (r *RabbitMQ) Resume() error { return r.process.signal(syscall.SIGCONT) }

// Close kills the broker and removes its data. It may be called twice.
func (r *RabbitMQ) Close() error {
	r.Kill()
	for _, port := range []*port{r.clients, r.inner, r.node} {
		if port != nil {
			port.release()
		}
	}
	return r.folder.remove()
}
