package archtest

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// root is the folder of the module.
const root = "../.."

// longest is the most lines that a Go file may have.
const longest = 500

// eachFile calls check with every Go file of the module.
func eachFile(t *testing.T, check func(path string, text []byte)) {
	t.Helper()
	var files int
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() {
			if path != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "bin") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files++
		check(strings.TrimPrefix(filepath.ToSlash(path), root+"/"), text)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 100 {
		t.Fatalf("saw only %d Go files: this is not the whole module", files)
	}
}

func TestNoFileIsTooLong(t *testing.T) {
	t.Parallel()
	eachFile(t, func(path string, text []byte) {
		if lines := bytes.Count(text, []byte("\n")); lines > longest {
			t.Errorf("%s has %d lines, more than %d: split it by noun or verb", path, lines, longest)
		}
	})
}

func TestNoFileIsNamedAfterNothing(t *testing.T) {
	t.Parallel()
	eachFile(t, func(path string, _ []byte) {
		for part := range strings.SplitSeq(strings.TrimSuffix(path, ".go"), "/") {
			switch strings.TrimSuffix(part, "_test") {
			case "util", "utils", "common", "helper", "helpers", "types", "misc":
				t.Errorf("%s: name it after what it holds", path)
			}
		}
	})
}

// Sinks and stores are wired by an explicit table, so an import alone changes
// nothing.
func TestNothingRegistersItselfAtImport(t *testing.T) {
	t.Parallel()
	eachFile(t, func(path string, text []byte) {
		file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution)
		if err != nil {
			t.Error(err)
			return
		}
		for _, declaration := range file.Decls {
			if function, ok := declaration.(*ast.FuncDecl); ok && function.Recv == nil && function.Name.Name == "init" {
				t.Errorf("%s has a func init", path)
			}
		}
	})
}
