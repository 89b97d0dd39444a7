package config

import (
	"maps"
	"reflect"
	"slices"

	"go.yaml.in/yaml/v3"
)

// storePart is what commands need that only speak to the store.
type storePart struct {
	Store Choice `yaml:"store,required"`
	Queue Queue  `yaml:"queue"`
}

// StoreOnly makes Load and LoadFile read store and queue alone, as strictly as
// ever. What else a relay's file holds may be there, and is not looked at: its
// variables need not be set. Only the names of sinks are read, see File.SinkNames.
func (k Kinds) StoreOnly() Kinds {
	k.storeOnly = true
	return k
}

// storeOnly reads store and queue from the file's top level.
func (d *decoder) storeOnly(root *yaml.Node, f *File) {
	part := storePart{Queue: f.Queue}
	others, _ := fieldsOf(reflect.TypeFor[File]())
	own, _ := fieldsOf(reflect.TypeFor[storePart]())
	maps.DeleteFunc(others, func(name string, _ reflect.StructField) bool { _, taken := own[name]; return taken })
	d.structure(root, reflect.ValueOf(&part).Elem(), "", slices.Sorted(maps.Keys(others)))
	f.Store, f.Queue = part.Store, part.Queue
	f.sinkNames = namesIn(root, "sinks")
	if d.complete {
		d.rules("store."+f.Store.Type, f.Store.Options)
	}
}

// namesIn are the keys of the mapping that stands at the top level under this
// name.
func namesIn(root *yaml.Node, name string) []string {
	if root.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(root.Content); i += 2 {
		section := root.Content[i+1]
		if root.Content[i].Value != name || section.Kind != yaml.MappingNode {
			continue
		}
		var names []string
		for j := 0; j < len(section.Content); j += 2 {
			names = append(names, section.Content[j].Value)
		}
		return names
	}
	return nil
}
