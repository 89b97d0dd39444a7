package config

import (
	"encoding"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// value decodes n into v, which can be set.
func (d *decoder) value(n *yaml.Node, v reflect.Value, path string, tag reflect.StructTag) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	d.lines[path] = n.Line
	if c, ok := v.Addr().Interface().(*Choice); ok {
		d.choice(n, c, path)
		return
	}
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		if s, ok := d.scalar(n, path, v); ok {
			d.text(s, u, v, path, n.Line, tag)
		}
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.structure(n, v, path, nil)
	case reflect.Pointer:
		p := reflect.New(v.Type().Elem())
		d.value(n, p.Elem(), path, tag)
		v.Set(p)
	case reflect.Map:
		d.mapping(n, v, path)
	case reflect.Slice:
		d.list(n, v, path)
	default:
		if s, ok := d.scalar(n, path, v); ok {
			d.plain(s, v, path, n.Line, tag)
		}
	}
}

// structure decodes a mapping into a struct, by its yaml tags. own names keys
// that the caller has read itself.
func (d *decoder) structure(n *yaml.Node, v reflect.Value, path string, own []string) {
	fields, required := fieldsOf(v.Type())
	if def, ok := v.Addr().Interface().(interface{ SetDefaults() }); ok {
		def.SetDefaults()
	}
	known := slices.Concat(own, slices.Sorted(maps.Keys(fields)))
	seen := d.pairs(n, path, func(key *yaml.Node, value *yaml.Node, at string) {
		f, ok := fields[key.Value]
		switch {
		case ok:
			d.value(value, v.FieldByIndex(f.Index), at, f.Tag)
		case slices.Contains(own, key.Value):
		default:
			d.report(at, key.Line, "unknown key%s", suggest(key.Value, known))
		}
	})
	if seen == nil {
		return
	}
	for _, name := range required {
		at := join(path, name)
		switch f := v.FieldByIndex(fields[name].Index); {
		case !seen[name]:
			d.report(at, n.Line, "is missing")
		case d.broken[at]:
		case f.Kind() == reflect.Slice || f.Kind() == reflect.Map:
			if f.Len() == 0 {
				d.report(at, d.lines[at], "is empty: name at least one")
			}
		case f.Kind() == reflect.String && f.Len() == 0:
			d.report(at, d.lines[at], "is empty")
		}
	}
}

// pairs calls f for each pair of a mapping and returns the keys, or nil after
// reporting that n is no mapping.
func (d *decoder) pairs(n *yaml.Node, path string, f func(key, value *yaml.Node, at string)) map[string]bool {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return map[string]bool{}
	}
	if n.Kind != yaml.MappingNode {
		d.report(path, n.Line, "must be a mapping of keys to values, not %s", kindOf(n))
		return nil
	}
	seen := make(map[string]bool, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind != yaml.ScalarNode || key.Tag == "!!merge" {
			d.report(path, key.Line, "keys must be plain words: lists, mappings, aliases and << are not taken as keys")
			continue
		}
		at := join(path, showKey(key.Value))
		if seen[key.Value] {
			d.report(at, key.Line, "is given twice")
			continue
		}
		seen[key.Value] = true
		f(key, value, at)
	}
	return seen
}

func (d *decoder) mapping(n *yaml.Node, v reflect.Value, path string) {
	m := reflect.MakeMap(v.Type())
	if d.pairs(n, path, func(key, value *yaml.Node, at string) {
		elem := reflect.New(v.Type().Elem()).Elem()
		d.value(value, elem, at, "")
		m.SetMapIndex(reflect.ValueOf(key.Value), elem)
	}) == nil {
		return
	}
	v.Set(m)
}

func (d *decoder) list(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return
	}
	if n.Kind == yaml.ScalarNode && v.Type().Elem().Kind() == reflect.String {
		if s, ok := d.scalar(n, path, v); ok {
			d.words(s, v, path, n.Line)
		}
		return
	}
	if n.Kind != yaml.SequenceNode {
		d.report(path, n.Line, "must be a list, not %s", kindOf(n))
		return
	}
	list := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
	for i, item := range n.Content {
		d.value(item, list.Index(i), fmt.Sprintf("%s[%d]", path, i), "")
	}
	v.Set(list)
}

// words splits a list that is given as one value, as a variable gives it.
func (d *decoder) words(s string, v reflect.Value, path string, line int) {
	var list []string
	for word := range strings.SplitSeq(s, ",") {
		if word = strings.TrimSpace(word); word != "" {
			list = append(list, word)
		}
	}
	v.Set(reflect.MakeSlice(v.Type(), len(list), len(list)))
	for i, word := range list {
		item := v.Index(i)
		if u, ok := item.Addr().Interface().(encoding.TextUnmarshaler); ok {
			d.text(word, u, item, fmt.Sprintf("%s[%d]", path, i), line, "")
		} else {
			item.SetString(word)
		}
	}
}

// choice decodes a store, {type: options}, or a sink, {type: kafka, options}.
func (d *decoder) choice(n *yaml.Node, c *Choice, path string) {
	if path == "store" {
		d.storeChoice(n, c, path)
		return
	}
	var kind *yaml.Node
	kinds := slices.Sorted(maps.Keys(d.kinds.Sinks))
	if n.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == "type" {
				kind = n.Content[i+1]
				break
			}
		}
		if kind == nil {
			d.report(join(path, "type"), n.Line, "is missing; known are: %s", strings.Join(kinds, ", "))
			return
		}
		if kind.Kind == yaml.AliasNode {
			kind = kind.Alias
		}
		var known bool
		if c.Type, known = d.scalar(kind, join(path, "type"), reflect.ValueOf(c).Elem().Field(0)); !known {
			return
		}
		if _, known = d.kinds.Sinks[c.Type]; !known {
			d.report(join(path, "type"), kind.Line, "unknown type%s", suggest(c.Type, kinds))
			return
		}
		c.Options = d.kinds.Sinks[c.Type]()
		d.structure(n, reflect.ValueOf(c.Options).Elem(), path, []string{"type"})
		return
	}
	d.report(path, n.Line, "must be a mapping with a type, not %s", kindOf(n))
}

func (d *decoder) storeChoice(n *yaml.Node, c *Choice, path string) {
	kinds := slices.Sorted(maps.Keys(d.kinds.Stores))
	seen := d.pairs(n, path, func(key, value *yaml.Node, at string) {
		options, known := d.kinds.Stores[key.Value]
		switch {
		case !known:
			d.report(at, key.Line, "unknown store%s", suggest(key.Value, kinds))
		case c.Type != "":
			d.report(at, key.Line, "is a second store: a relay reads one")
		default:
			c.Type, c.Options, c.store = key.Value, options(), true
			d.value(value, reflect.ValueOf(c.Options).Elem(), at, "")
		}
	})
	if seen != nil && len(seen) == 0 {
		d.report(path, n.Line, "names no store; known are: %s", strings.Join(kinds, ", "))
	}
}

// text sets a value that reads itself.
func (d *decoder) text(s string, u encoding.TextUnmarshaler, v reflect.Value, path string, line int, tag reflect.StructTag) {
	if err := u.UnmarshalText([]byte(s)); err != nil {
		d.report(path, line, "%s", err)
		return
	}
	switch x := u.(type) {
	case *Secret:
		d.secrets = append(d.secrets, string(*x))
	case *URI:
		_, secrets := hideURI(string(*x))
		d.secrets = append(d.secrets, secrets...)
	}
	if least := tag.Get("min"); least != "" {
		bound := reflect.New(v.Type())
		if err := bound.Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(least)); err == nil && v.Int() < bound.Elem().Int() {
			d.report(path, line, "must be at least %s", least)
		}
	}
}

// plain sets a string, number or truth value.
func (d *decoder) plain(s string, v reflect.Value, path string, line int, tag reflect.StructTag) {
	switch v.Kind() {
	case reflect.String:
		if enum := tag.Get("enum"); enum != "" && !slices.Contains(strings.Split(enum, ","), s) {
			d.report(path, line, "must be one of %s", strings.ReplaceAll(enum, ",", ", "))
			return
		}
		v.SetString(s)
	case reflect.Bool:
		if s != "true" && s != "false" {
			d.report(path, line, "must be true or false")
			return
		}
		v.SetBool(s == "true")
	case reflect.Int, reflect.Int64:
		n, err := strconv.ParseInt(s, 10, 32)
		least, _ := strconv.ParseInt(tag.Get("min"), 10, 64)
		switch {
		case err != nil:
			d.report(path, line, "must be a whole number")
		case n < least:
			d.report(path, line, "must be at least %d", least)
		default:
			v.SetInt(n)
		}
	default:
		panic(fmt.Sprintf("config: options hold a %s, which has no form in a file", v.Type()))
	}
}

// fieldsOf returns the fields of a struct by the name in their yaml tag.
func fieldsOf(t reflect.Type) (fields map[string]reflect.StructField, required []string) {
	fields = map[string]reflect.StructField{}
	for f := range t.Fields() {
		name, option, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if name == "" || !f.IsExported() {
			continue
		}
		fields[name] = f
		if option == "required" {
			required = append(required, name)
		}
	}
	return fields, required
}

func kindOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	if n.Tag == "!!null" {
		return "empty"
	}
	return "a single value"
}

// showKey cuts a key for messages.
func showKey(key string) string {
	if len(key) > 64 {
		return fmt.Sprintf("%q…", key[:64])
	}
	if namePattern.MatchString(key) {
		return key
	}
	return strconv.Quote(key)
}
