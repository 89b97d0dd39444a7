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
// variables need not be set.
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
	if d.complete {
		d.rules("store."+f.Store.Type, f.Store.Options)
	}
}
