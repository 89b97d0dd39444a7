package services

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/segmentio/kafka-go"
)

// KafkaConfig says which broker to start. The zero value is a broker that
// listens without TLS and SASL and creates topics when they are first used.
type KafkaConfig struct {
	// TLS makes clients connect by TLS. The broker's certificate, for
	// 127.0.0.1 and localhost, comes from an authority of this broker's own.
	TLS bool

	// SASL makes clients log in as User with Password, by PLAIN,
	// SCRAM-SHA-256 or SCRAM-SHA-512.
	SASL bool

	// Properties are added to server.properties, or replace what is there.
	Properties map[string]string

	// HeapMB is the size of the heap. Defaults to 512.
	HeapMB int

	// Throughput makes the broker compile its code as well as Java can, for
	// benchmarks. Without it a start costs a third less.
	Throughput bool

	// Port is the port for clients. Defaults to a free one.
	Port int

	// Advertised is the address that clients are told to use, such as that of
	// a proxy before the broker. Defaults to the broker's own.
	Advertised string
}

// Kafka is a broker in KRaft mode, its own controller. Its methods may not be
// called concurrently.
type Kafka struct {
	config     KafkaConfig
	java, jars string
	folder     *folder
	clients    *port // for clients, as configured
	inner      *port // without TLS and SASL, for the broker and this package
	controller *port
	process    *process
}

// StartKafka starts a broker and returns when it answers. ctx bounds the start
// only. The caller must Close it.
func StartKafka(ctx context.Context, config KafkaConfig) (*Kafka, error) {
	return startKafka(ctx, config, func() (*folder, error) { return newFolder(ctx, "kafka") })
}

func startKafka(ctx context.Context, config KafkaConfig, newFolder func() (*folder, error)) (*Kafka, error) {
	java, err := java.provide(ctx)
	if err != nil {
		return nil, err
	}
	jars, err := kafkaJars(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := newFolder()
	if err != nil {
		return nil, err
	}
	k := &Kafka{config: config, java: java, jars: jars, folder: dir}
	if err := k.prepare(ctx); err != nil {
		return nil, errors.Join(err, k.Close())
	}
	if err := k.Start(ctx); err != nil {
		return nil, errors.Join(err, k.Close())
	}
	return k, nil
}

// prepare makes everything that the broker finds at its start.
func (k *Kafka) prepare(ctx context.Context) error {
	var err error
	if k.clients, err = reservePort(k.config.Port); err != nil {
		return err
	}
	if k.inner, err = reservePort(0); err != nil {
		return err
	}
	if k.controller, err = reservePort(0); err != nil {
		return err
	}
	if k.config.TLS {
		if err := writeCertificates(k.folder); err != nil {
			return err
		}
	}
	if err := os.WriteFile(k.propertiesFile(), k.properties(), 0o600); err != nil {
		return fmt.Errorf("writing server.properties: %w", err)
	}
	return k.format(ctx)
}

// Start starts the broker on its old data and ports and returns when it answers.
func (k *Kafka) Start(ctx context.Context) error {
	if k.process.running() {
		return fmt.Errorf("starting Kafka %s: it is running", k.Brokers()[0])
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	heapMB := k.config.HeapMB
	if heapMB == 0 {
		heapMB = 512
	}
	args := append(k.javaArgs(), "-Xmx"+strconv.Itoa(heapMB)+"m")
	if !k.config.Throughput {
		args = append(args, quickStart)
	}
	started, err := launch("kafka", k.Log(), k.folder.lasting, k.java, append(args, "kafka.Kafka", k.propertiesFile())...)
	if err != nil {
		return err
	}
	k.process = started
	return started.await(ctx, k.answers)
}

// quickStart keeps Java from compiling what won't run for long.
const quickStart = "-XX:TieredStopAtLevel=1"

// javaArgs are those of every Java program here: little memory, and errors
// and warnings only.
func (k *Kafka) javaArgs() []string {
	return []string{
		"-cp", filepath.Join(k.jars, "*"), "-XX:+UseSerialGC",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.showDateTime=true",
	}
}

// answers tells whether clients could produce now.
func (k *Kafka) answers(ctx context.Context) error {
	return withKafkaClient(k.PlainBrokers(), func(client *kafka.Client) error {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		found, err := client.Metadata(ctx, &kafka.MetadataRequest{})
		if err != nil {
			return fmt.Errorf("asking the broker for metadata: %w", err)
		}
		if len(found.Brokers) == 0 {
			return errors.New("asking the broker for metadata: it has not joined its cluster yet")
		}
		return nil
	})
}

// Brokers returns the addresses that clients are given: one.
func (k *Kafka) Brokers() []string { return []string{k.clients.address()} }

// PlainBrokers returns an address that needs neither TLS nor SASL, whatever
// clients use, to look at what they wrote.
func (k *Kafka) PlainBrokers() []string { return []string{k.inner.address()} }

// CAFile returns the path of the authority's certificate (PEM). Empty without TLS.
func (k *Kafka) CAFile() string {
	if !k.config.TLS {
		return ""
	}
	return k.folder.file("ca.pem")
}

// Log returns the path of the broker's log.
func (k *Kafka) Log() string { return k.folder.file("log") }

// Kill ends the broker without notice (SIGKILL).
func (k *Kafka) Kill() {
	if k.process != nil {
		k.process.kill()
	}
}

// Stop ends the broker in an orderly way. The data stays for Start.
func (k *Kafka) Stop() error {
	if k.process == nil {
		return nil
	}
	return k.process.stop()
}

// Restart stops the broker in an orderly way and starts it again.
func (k *Kafka) Restart(ctx context.Context) error {
	if err := k.Stop(); err != nil {
		return err
	}
	return k.Start(ctx)
}

// Pause freezes the broker (SIGSTOP): its connections stay open and nothing
// answers.
func (k *Kafka) Pause() error { return k.process.signal(syscall.SIGSTOP) }

// Resume lets a paused broker go on.
func (k *Kafka) Resume() error { return k.process.signal(syscall.SIGCONT) }

// Close kills the broker and removes its data. It may be called twice.
func (k *Kafka) Close() error {
	k.Kill()
	for _, port := range []*port{k.clients, k.inner, k.controller} {
		if port != nil {
			port.release()
		}
	}
	return k.folder.remove()
}
