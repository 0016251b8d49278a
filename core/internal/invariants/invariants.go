// Package invariants switches on checks that are too dear for production: those which look at a whole table after every
// change. They are compiled in with the build tag "invariants", which the tests that CI runs have, and otherwise
// removed by the compiler. A check that fails panics: what it found is a fault of ours, whatever the input was.
package invariants
