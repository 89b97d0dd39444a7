// Package config reads the YAML file of a relay: strictly, with every problem
// named at once by its path and line, and without a secret in any message.
//
// Values may hold ${NAME}, replaced by an environment variable, and
// ${file:/path}, replaced by what a file holds; $${ stands for ${ itself. Both
// are replaced in single values after the file was parsed, so that what they
// hold can't change its structure.
//
// The package knows no store and no sink. Kinds names them, each with a
// function that returns its options, a pointer to a struct: set to defaults,
// with yaml tags. A tag "name,required" refuses a missing value, an enum tag
// lists the allowed ones, a min tag bounds a number from below.
package config
