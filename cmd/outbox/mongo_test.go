package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gooutbox/outbox/internal/servicetest"
)

func TestCheckExplainsWrongAddresses(t *testing.T) {
	t.Parallel()
	host := hostOf(t, servicetest.MongoURL(t))
	for query, want := range map[string]string{
		"replicaSet=rs9":                 "no member calls its set rs9: check replicaSet= in store.mongodb.uri",
		"directConnection=true&tls=true": "does this port speak TLS?",
	} {
		uri := fmt.Sprintf("mongodb://%s/?%s&serverSelectionTimeoutMS=1500", host, query)
		status, found := checked(t, relayConfigFile(t, uri, "shop", servicetest.Kafka(t)[0], "t"))
		if f := found["MongoDB"]; status != exitFailed || !strings.Contains(f.Advice, want) {
			t.Errorf("%s: status %d, %+v, want %q", query, status, f, want)
		}
	}
}
