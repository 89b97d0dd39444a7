package config

import (
	"bytes"
	"encoding"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// YAML returns the whole configuration with its defaults, in the form of a
// file. Secrets are replaced by Hidden; what was left empty is left out.
func (f *File) YAML() ([]byte, error) {
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(nodeOf(reflect.ValueOf(f).Elem())); err != nil {
		return nil, fmt.Errorf("printing the configuration: %w", err)
	}
	return []byte(f.Redactor().String(b.String())), nil
}

func nodeOf(v reflect.Value) *yaml.Node {
	if c, ok := v.Interface().(Choice); ok {
		return choiceNode(c)
	}
	if v.Kind() == reflect.Pointer && v.IsNil() {
		return nil
	}
	if m, ok := v.Interface().(encoding.TextMarshaler); ok {
		text, err := m.MarshalText()
		if err != nil || len(text) == 0 {
			return nil
		}
		if v.CanInt() || v.CanFloat() {
			return &yaml.Node{Kind: yaml.ScalarNode, Value: string(text)}
		}
		return scalarNode(string(text))
	}
	switch v.Kind() {
	case reflect.Pointer:
		if n := nodeOf(v.Elem()); n != nil {
			return n
		}
		return &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle}
	case reflect.Struct:
		return structNode(v)
	case reflect.Map:
		n := &yaml.Node{Kind: yaml.MappingNode}
		for _, k := range slices.SortedFunc(maps.Keys(keysOf(v)), strings.Compare) {
			add(n, k, nodeOf(v.MapIndex(reflect.ValueOf(k))))
		}
		return orNil(n)
	case reflect.Slice:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		for i := range v.Len() {
			n.Content = append(n.Content, nodeOf(v.Index(i)))
		}
		if len(n.Content) > 0 && n.Content[0].Kind == yaml.ScalarNode {
			n.Style = yaml.FlowStyle
		}
		return orNil(n)
	case reflect.String:
		if v.String() == "" {
			return nil
		}
		return scalarNode(v.String())
	case reflect.Bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: strconv.FormatBool(v.Bool())}
	default:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: fmt.Sprint(v.Interface())}
	}
}

func structNode(v reflect.Value) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if name != "" && f.IsExported() {
			add(n, name, nodeOf(v.Field(i)))
		}
	}
	return orNil(n)
}

func choiceNode(c Choice) *yaml.Node {
	options := nodeOf(reflect.ValueOf(c.Options))
	if options == nil {
		options = &yaml.Node{Kind: yaml.MappingNode}
	}
	n := &yaml.Node{Kind: yaml.MappingNode}
	if c.store {
		add(n, c.Type, options)
		return n
	}
	add(n, "type", scalarNode(c.Type))
	n.Content = append(n.Content, options.Content...)
	return n
}

// scalarNode escapes ${ so that the printed value reads as itself.
func scalarNode(s string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(strings.ReplaceAll(s, "${", "$${"))
	return n
}

func add(n *yaml.Node, key string, value *yaml.Node) {
	if value != nil {
		k := &yaml.Node{}
		k.SetString(key)
		n.Content = append(n.Content, k, value)
	}
}

func orNil(n *yaml.Node) *yaml.Node {
	if len(n.Content) == 0 {
		return nil
	}
	return n
}

func keysOf(v reflect.Value) map[string]struct{} {
	keys := make(map[string]struct{}, v.Len())
	for _, k := range v.MapKeys() {
		keys[k.String()] = struct{}{}
	}
	return keys
}
