package main

import (
	"maps"
	"slices"
	"strings"

	"github.com/gooutbox/outbox/codec/aesgcm"
	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/config"
)

// codecOptions is what seals the payloads of a store in a configuration.
type codecOptions struct {
	Type string `yaml:"type,required" enum:"aes-gcm"`
	// Primary is the id of the key that seals.
	Primary string `yaml:"primary,required"`
	// Keys by their ids, in base64.
	Keys map[string]config.Secret `yaml:"keys,required"`
}

// validate reports what keeps the options from being used. base is their path.
func (o *codecOptions) validate(base string, report config.Report) {
	cfg, ok := o.ring(base, report)
	if !ok || len(cfg.Keys) == 0 || cfg.Primary == "" {
		return // told already
	}
	for _, err := range eachOf(cfg.Validate()) {
		field, problem, _ := strings.Cut(err.Error(), " ")
		report(base+"."+strings.ToLower(field[:1])+field[1:], problem)
	}
}

// ring reads the keys, and tells false after reporting those that are none.
func (o *codecOptions) ring(base string, report config.Report) (aesgcm.Config, bool) {
	cfg, ok := aesgcm.Config{Primary: o.Primary, Keys: map[string]aesgcm.Key{}}, true
	for _, id := range slices.Sorted(maps.Keys(o.Keys)) {
		key, err := aesgcm.ParseKey(o.Keys[id].Reveal())
		if err != nil {
			report(base+".keys."+id, err.Error())
			ok = false
		}
		cfg.Keys[id] = key
	}
	return cfg, ok
}

// codec makes the codec, nil for nil options.
func (o *codecOptions) codec() (core.Codec, error) {
	if o == nil {
		return nil, nil
	}
	cfg, _ := o.ring("", func(string, string) {}) // a key that is none is one that New refuses
	return aesgcm.New(cfg)
}
