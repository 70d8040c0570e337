package expression

const (
	// longest is the length in bytes of the text for which the cost is bounded: about the longest path.
	longest = 8192
	// maxSteps is how many steps are allowed on that text. PCRE takes 1 to 3 ns for one, so that a
	// match takes a millisecond at most.
	maxSteps = 250_000
)

// The cost is that of a matcher that tries one way after another, as PCRE does, on the
// worst text of 8 KiB. It is computed from the end of the expression to its beginning: for
// each part there is what follows it, its tail.
//
// A loop whose body and tail cannot begin with the same character has one way only: where
// the tail fails, giving back what the loop took fails at once. Otherwise the tail is tried
// after each round, and its cost counts for each. Two such loops behind one another cost the
// square of the length, and ways within the body of a loop can cost 2 to its power: they are
// refused.

// set are the bytes that something can begin with.
type set [256]bool

func (s *set) add(o set) {
	for i, in := range o {
		s[i] = s[i] || in
	}
}

func (s set) meets(o set) bool {
	for i, in := range s {
		if in && o[i] {
			return true
		}
	}
	return false
}

// tail is what is known about the rest of an expression.
type tail struct {
	first set
	// fail is the highest cost to find out that it does not match, and all the highest cost in any
	// case.
	fail, all float64
	// sure: it matches everywhere. atEnd: it matches at the end of the text.
	sure, atEnd bool
}

// coster computes costs.
type coster struct {
	loops     int  // around what is looked at
	ambiguous bool // several ways were found within a loop
}

// cost returns the most steps that an expression takes.
func cost(n node) (int, error) {
	var c coster
	whole := c.before(n, tail{sure: true, atEnd: true})
	if !isAnchored(n) { // it is tried from every byte
		whole.all += longest * (1 + whole.fail)
	}
	const hint = "begin it with ^, avoid two adjacent repetitions that match the same characters, and repetitions within one another; [^/]* matches one part of a path"
	switch {
	case c.ambiguous:
		return 0, refuse(hint, "has several ways to match within a repetition, which may take practically forever")
	case whole.all > maxSteps:
		return 0, refuse(hint, "may take %.0g steps on a path of 8 KiB; %d are allowed", whole.all, maxSteps)
	}
	return int(whole.all), nil
}

// isAnchored reports whether an expression only matches at the beginning of the text.
func isAnchored(n node) bool {
	switch n.kind {
	case begin:
		return true
	case sequence:
		return len(n.parts) > 0 && isAnchored(n.parts[0])
	case repeat:
		return n.least > 0 && isAnchored(n.parts[0])
	case choice:
		for _, part := range n.parts {
			if !isAnchored(part) {
				return false
			}
		}
		return true
	}
	return false
}

// before returns what is known of a node with what follows it.
func (c *coster) before(n node, rest tail) tail {
	switch n.kind {
	case character:
		return tail{first: n.set, fail: 1 + rest.fail, all: 1 + rest.all}
	case sequence:
		for i := len(n.parts) - 1; i >= 0; i-- {
			rest = c.before(n.parts[i], rest)
		}
		return rest
	case choice:
		ways := make([]tail, len(n.parts))
		for i, part := range n.parts {
			ways[i] = c.before(part, rest)
		}
		return c.either(ways...)
	case repeat:
		return c.repeated(n, rest)
	case end:
		return tail{fail: 1 + rest.fail, all: 1 + rest.all, atEnd: rest.atEnd}
	default: // it may fail, and takes nothing
		return tail{first: rest.first, fail: 1 + rest.fail, all: 1 + rest.all}
	}
}

func (c *coster) repeated(n node, rest tail) tail {
	if n.least == 0 && n.most == 1 {
		return c.either(c.before(n.parts[0], rest), rest)
	}
	more := longest
	if n.most >= 0 {
		more = n.most - n.least
	}
	rest = c.loop(n.parts[0], more, rest)
	for range n.least {
		rest = c.before(n.parts[0], rest)
	}
	return rest
}

// either are several ways, which are tried one after another.
func (c *coster) either(ways ...tail) tail {
	var out tail
	several := false
	for _, way := range ways {
		several = several || out.first.meets(way.first)
		out.first.add(way.first)
		out.atEnd, out.sure = out.atEnd || way.atEnd, out.sure || way.sure
	}
	for _, way := range ways {
		if several {
			out.fail, out.all = out.fail+way.fail, out.all+way.all
		} else {
			out.fail, out.all = max(out.fail, way.fail), max(out.all, way.all)
		}
	}
	out.fail, out.all = out.fail+float64(len(ways)), out.all+float64(len(ways))
	if several && c.loops > 0 {
		c.ambiguous = true
	}
	if out.sure {
		out.fail = 0
	}
	return out
}

// loop is a node up to so many times, and what follows.
func (c *coster) loop(body node, times int, rest tail) tail {
	if times == 0 {
		return rest
	}
	begins := firstOf(body)
	again := rest.first
	again.add(begins)
	c.loops++
	c.before(body, tail{first: again}) // for the ways within
	c.loops--

	several := begins.meets(rest.first)
	if several && c.loops > 0 {
		c.ambiguous = true
	}
	out := tail{first: again, sure: rest.sure, atEnd: rest.atEnd}
	// A loop that takes all there is comes to the end of the text.
	out.sure = out.sure || rest.atEnd && times >= longest && takesAll(body)
	rounds := float64(times) * float64(1+size(body))
	tries := 1.0
	if several {
		tries = float64(times)
	}
	out.all = rounds + rest.all + tries*rest.fail
	if !out.sure {
		out.fail = rounds + tries*rest.fail
	}
	return out
}

// firstOf returns what a node can begin with.
func firstOf(n node) set {
	var apart coster
	return apart.before(n, tail{}).first
}

// takesAll reports whether a node is one character, whichever.
func takesAll(n node) bool {
	for n.kind == sequence && len(n.parts) == 1 {
		n = n.parts[0]
	}
	return n.kind == character && n.set == notNewline()
}

// size is how many steps a character takes at most on its way through a node.
func size(n node) int {
	out := 1
	for _, part := range n.parts {
		out += size(part)
	}
	if n.kind == repeat {
		out *= max(1, n.least, n.most)
	}
	return out
}
