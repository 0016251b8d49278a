// Package lint is the rules of the repository as tests: which package of core may import which, what the pure Go part
// must not use, what has to be explained, how long lines and files are, how many methods a type has, and that the files
// which a page of documentation names exist. It exports nothing; go test runs it.
package lint
