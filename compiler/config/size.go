package config

import (
	"fmt"
	"regexp"
	"strconv"
)

// Size is a number of bytes such as 40k: a number, perhaps with k for 1,024 bytes or
// m for 1,024 of these.
type Size string

var sizeForm = regexp.MustCompile(`^([1-9][0-9]{0,8})([km]?)$`)

// Bytes returns the number of bytes of a valid size, and 0 for another.
func (s Size) Bytes() int {
	m := sizeForm.FindStringSubmatch(string(s))
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(m[1]) // of nine digits
	return n << map[string]int{"": 0, "k": 10, "m": 20}[m[2]]
}

// check returns what is wrong with a size that must be within bounds.
func (s Size) check(least, most int) string {
	switch n := s.Bytes(); {
	case n == 0:
		return fmt.Sprintf("%q is not a size", string(s))
	case n < least || n > most:
		return fmt.Sprintf("%s is not from %dk to %dk", s, least>>10, most>>10)
	}
	return ""
}
