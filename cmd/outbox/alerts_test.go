package main

import (
	"context"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/metric"
	"go.yaml.in/yaml/v3"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/config"
	"github.com/gooutbox/outbox/internal/servicetest"
	"github.com/gooutbox/outbox/relay"
	mongostore "github.com/gooutbox/outbox/store/mongo"
)

// alertRules are the sample rules of the documentation.
func alertRules(t *testing.T) []alertRule {
	t.Helper()
	text, err := os.ReadFile("../../docs/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Rules []alertRule `yaml:"rules"`
		} `yaml:"groups"`
	}
	if err := yaml.Unmarshal(text, &file); err != nil || len(file.Groups) != 1 {
		t.Fatal(err)
	}
	return file.Groups[0].Rules
}

type alertRule struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

var (
	metricName = regexp.MustCompile(`\boutbox_[a-z_]+(?:_total|_seconds)\b|\boutbox_relay_[a-z_]+\b`)
	labelName  = regexp.MustCompile(`by \(([a-z_]+)\)|\{([a-z_]+)=|\$labels\.([a-z_]+)`)
)

// TestAlertRulesNameMetricsThatExist reads the names from the page of an admin
// listener, with a relay that runs. Counters are made to show themselves before
// they count.
func TestAlertRulesNameMetricsThatExist(t *testing.T) {
	t.Parallel()
	logger := slog.New(slog.DiscardHandler)
	meters, page, err := newMetrics(logger)
	if err != nil {
		t.Fatal(err)
	}
	meters = fromZero{meters}
	s, err := mongostore.New(servicetest.Database(t), mongostore.Config{MeterProvider: meters, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.EnsureIndexes(t.Context()); err != nil {
		t.Fatal(err)
	}
	err = s.InTransaction(t.Context(), func(ctx context.Context) error {
		if err := s.Append(ctx, order("e-1", "order-7")); err != nil {
			return err
		}
		_, err := s.Enqueue(ctx, mail("a"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Pause(t.Context(), core.Pause{PauseTarget: core.PauseTarget{Scope: core.PauseSink, Name: "other"}}); err != nil {
		t.Fatal(err)
	}
	nothing := core.SinkFunc(func(context.Context, core.Lease) error { return nil })
	r, err := relay.New(relay.Config{
		Log: s, Queue: s, Logger: logger, MeterProvider: meters,
		Sinks:   map[string]core.Sink{"events": nothing, "mail": nothing},
		Routes:  []relay.Route{{Name: "kafka", Sink: "events"}},
		Workers: []relay.Worker{{Sink: "mail"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	a, err := listenAdmin("127.0.0.1:0", page, func() verdict { return verdict{} }, config.Redactor{}, logger)
	if err != nil {
		t.Fatal(err)
	}
	defer a.close()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()

	rules := alertRules(t)
	if len(rules) < 10 {
		t.Errorf("only %d rules were read", len(rules))
	}
	var text string
	eventually(t, "the gauges of a route", func() bool {
		_, text = get(t, "http://"+a.address()+"/metrics")
		return strings.Contains(text, "outbox_relay_lag_seconds{") && strings.Contains(text, "outbox_relay_jobs_stored{")
	})
	for _, rule := range rules {
		names := slices.Compact(metricName.FindAllString(rule.Expr, -1))
		if len(names) == 0 {
			t.Errorf("%s names no metric: %s", rule.Alert, rule.Expr)
		}
		for _, name := range names {
			if isLabel(rule, name) {
				continue
			}
			if !strings.Contains(text, "\n"+name+"{") && !strings.Contains(text, "\n"+name+" ") {
				t.Errorf("%s: no metric is called %s", rule.Alert, name)
			}
		}
		for _, label := range labelsOf(rule) {
			if !strings.Contains(text, label+`="`) && label != "outbox_state" {
				t.Errorf("%s: no label is called %s", rule.Alert, label)
			}
		}
	}
}

func labelsOf(rule alertRule) []string {
	var all []string
	for _, m := range labelName.FindAllStringSubmatch(rule.Expr+rule.Annotations["summary"], -1) {
		all = append(all, m[1]+m[2]+m[3])
	}
	return all
}

func isLabel(rule alertRule, name string) bool { return slices.Contains(labelsOf(rule), name) }

// TestAlertRulesCanFire keeps out what never becomes true: an increase of a
// counter that wasn't there before, and a gauge that must not dip for once.
func TestAlertRulesCanFire(t *testing.T) {
	t.Parallel()
	for _, rule := range alertRules(t) {
		counts := strings.Contains(rule.Expr, "increase(")
		if counts && !strings.Contains(rule.Expr, " offset ") {
			t.Errorf("%s doesn't see a counter's first value: %s", rule.Alert, rule.Expr)
		}
		if strings.Contains(rule.Expr, "min_over_time") {
			t.Errorf("%s needs every sample of its window: say it by for: %s", rule.Alert, rule.Expr)
		}
		if !counts && rule.For == "" {
			t.Errorf("%s fires at one sample", rule.Alert)
		}
	}
}

// TestEachAlertIsExplained finds each rule, and each verdict of /readyz, in what
// operators read.
func TestEachAlertIsExplained(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range alertRules(t) {
		if !strings.Contains(string(text), "`"+rule.Alert+"`") {
			t.Errorf("docs/operating.md doesn't explain %s", rule.Alert)
		}
		if rule.Labels["severity"] == "" || rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" {
			t.Errorf("%s lacks a severity, summary or description", rule.Alert)
		}
	}
	for _, code := range verdictOrder {
		if !strings.Contains(string(text), "`"+code+"`") {
			t.Errorf("docs/operating.md doesn't explain the verdict %s", code)
		}
	}
}

// fromZero makes counters that show themselves at once.
type fromZero struct{ metric.MeterProvider }

func (p fromZero) Meter(name string, opts ...metric.MeterOption) metric.Meter {
	return zeroMeter{p.MeterProvider.Meter(name, opts...)}
}

type zeroMeter struct{ metric.Meter }

func (m zeroMeter) Int64Counter(name string, opts ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	c, err := m.Meter.Int64Counter(name, opts...)
	if err == nil {
		c.Add(context.Background(), 0)
	}
	return c, err
}
