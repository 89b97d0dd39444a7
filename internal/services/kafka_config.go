package services

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
)

// The broker's listeners.
const (
	clientListener     = "CLIENT"
	innerListener      = "INNER"
	controllerListener = "CONTROLLER"
)

func (k *Kafka) propertiesFile() string { return k.folder.file("server.properties") }

// properties returns the text of server.properties.
func (k *Kafka) properties() []byte {
	all := map[string]string{
		"process.roles":                  "broker,controller",
		"node.id":                        "1",
		"controller.quorum.voters":       "1@" + k.controller.address(),
		"controller.listener.names":      controllerListener,
		"inter.broker.listener.name":     innerListener,
		"listeners":                      k.listeners(k.clients.address()) + "," + controllerListener + "://" + k.controller.address(),
		"advertised.listeners":           k.listeners(cmp.Or(k.config.Advertised, k.clients.address())),
		"listener.security.protocol.map": clientListener + ":" + k.protocol() + "," + innerListener + ":PLAINTEXT," + controllerListener + ":PLAINTEXT",
		"log.dirs":                       k.folder.file("data"),

		// One node can't hold copies.
		"offsets.topic.replication.factor":                 "1",
		"transaction.state.log.replication.factor":         "1",
		"transaction.state.log.min.isr":                    "1",
		"share.coordinator.state.topic.replication.factor": "1",
		"share.coordinator.state.topic.min.isr":            "1",

		// Less work at start and when a consumer joins.
		"offsets.topic.num.partitions":         "1",
		"transaction.state.log.num.partitions": "1",
		"group.initial.rebalance.delay.ms":     "0",

		// A broker that was killed can't come back before its old session ends.
		"broker.session.timeout.ms":    "3000",
		"broker.heartbeat.interval.ms": "500",
	}
	if k.config.TLS {
		prefix := "listener.name.client."
		all[prefix+"ssl.keystore.type"] = "PEM"
		all[prefix+"ssl.keystore.location"] = k.folder.file("server.pem")
	}
	if k.config.SASL {
		all["sasl.enabled.mechanisms"] = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
		module := "org.apache.kafka.common.security.%s required"
		all["listener.name.client.plain.sasl.jaas.config"] = fmt.Sprintf(module, "plain.PlainLoginModule") + " user_" + User + `="` + Password + `";`
		for _, mechanism := range []string{"scram-sha-256", "scram-sha-512"} {
			all["listener.name.client."+mechanism+".sasl.jaas.config"] = fmt.Sprintf(module, "scram.ScramLoginModule") + ";"
		}
	}
	maps.Copy(all, k.config.Properties)
	var text bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&text, "%s=%s\n", name, all[name])
	}
	return text.Bytes()
}

func (k *Kafka) listeners(clients string) string {
	return clientListener + "://" + clients + "," + innerListener + "://" + k.inner.address()
}

// protocol is Kafka's name for how clients connect.
func (k *Kafka) protocol() string {
	switch {
	case k.config.TLS && k.config.SASL:
		return "SASL_SSL"
	case k.config.TLS:
		return "SSL"
	case k.config.SASL:
		return "SASL_PLAINTEXT"
	}
	return "PLAINTEXT"
}

// format makes the broker's data folder, with the user in it.
func (k *Kafka) format(ctx context.Context) error {
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails
	args := append(k.javaArgs(), quickStart, "kafka.tools.StorageTool", "format",
		"-t", base64.RawURLEncoding.EncodeToString(id), "-c", k.propertiesFile())
	if k.config.SASL {
		for _, mechanism := range []string{"SCRAM-SHA-256", "SCRAM-SHA-512"} {
			args = append(args, "--add-scram", mechanism+"=[name="+User+",password="+Password+"]")
		}
	}
	if _, err := output(ctx, k.java, args...); err != nil {
		return fmt.Errorf("formatting Kafka's data folder: %w", err)
	}
	return nil
}
