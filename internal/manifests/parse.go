package manifests

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// document is the content of one document of a file. It depends on the text alone: all positions are relative
// to it, so that it stays valid when the lines before it change.
type document struct {
	objects  []Object
	problems []Problem
}

// parseDocument reads one YAML document.
func parseDocument(text []byte) *document {
	var doc document
	var root, rest yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(text))
	err := dec.Decode(&root)
	if err == nil {
		// No second value may follow the first.
		if err = dec.Decode(&rest); err == nil {
			err = errTwoValues
		}
	}
	switch {
	case !errors.Is(err, io.EOF):
		doc.problems = append(doc.problems, yamlProblem(text, err))
	case len(root.Content) > 0:
		doc.addValue(root.Content[0])
	}
	return &doc
}

var errTwoValues = errors.New("two values without --- between them")

// parseStream reads a JSON file.
func parseStream(text []byte) *document {
	var doc document
	values, problem := parseJSON(text)
	for _, value := range values {
		doc.addValue(value)
	}
	if problem != nil {
		doc.problems = append(doc.problems, *problem)
	}
	return &doc
}

// yamlLine finds the line in an error of the YAML parser.
var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// leftOut begins what hints say of the documents of a file.
const leftOut = "this document was left out"

// Advice returns the hint without what became of the documents, for a file that should have one.
func (p Problem) Advice() string {
	advice, _, _ := strings.Cut(p.Hint, leftOut)
	return strings.TrimSuffix(advice, "; ")
}

// yamlProblem turns an error of the YAML parser into a problem with a place. The parser takes the bytes of UTF-16 for
// control characters, or for one document in place of several, and its error would lead nowhere.
func yamlProblem(text []byte, err error) Problem {
	if bytes.IndexByte(text, 0) >= 0 {
		return Problem{
			Position: Position{Line: 1}, Message: "not YAML: the file is not UTF-8, and may be UTF-16, which PowerShell writes",
			Hint: "write it as UTF-8, as with iconv -f UTF-16 -t UTF-8; " + leftOut,
		}
	}
	message := err.Error()
	line := 1
	if m := yamlLine.FindStringSubmatch(message); m != nil {
		message = message[len(m[0]):]
		if n, err := strconv.Atoi(m[1]); err == nil {
			line = n
		}
	}
	if strings.Contains(message, "<document start>") {
		message = errTwoValues.Error()
	}
	return Problem{
		Position: Position{Line: line}, Message: "not YAML: " + message,
		Hint: leftOut + "; the others of the file were read",
	}
}

// addValue adds the objects in a whole document.
func (d *document) addValue(n *yaml.Node) {
	n, err := expand(n)
	if err != nil {
		d.problem(n, Object{}, err.Error(), "write the values out")
		return
	}
	if n.Tag != yaml.NodeTagNull {
		d.add(n, GVK{})
	}
}

// add adds the object of a node, or the objects of a List. The items of a typed list, such as IngressList, may
// leave out what the type of the list says about them.
func (d *document) add(n *yaml.Node, inherited GVK) {
	if n.Kind != yaml.MappingNode {
		d.problem(n, Object{}, "not a Kubernetes object: "+kindOf(n)+", not a mapping", "an object has apiVersion, kind and metadata.name")
		return
	}
	o := newObject(n, inherited)
	if items, ok := listItems(o); ok {
		element := GVK{o.APIVersion, strings.TrimSuffix(o.Kind, "List")}
		if o.Kind == "List" {
			element = GVK{}
		}
		for _, item := range items {
			d.add(item, element)
		}
		return
	}
	if missing := o.missing(); missing != "" {
		message := missing + " is missing"
		if o.APIVersion == "" || o.Kind == "" { // otherwise its author knows what it is
			message = "not a Kubernetes object: " + message
		}
		d.problem(n, o, message, "an object has apiVersion, kind and metadata.name")
		return
	}
	d.objects = append(d.objects, o)
}

// listItems returns the items if the object is a list of objects.
func listItems(o Object) ([]*yaml.Node, bool) {
	_, items := field(o.node, "items")
	if !strings.HasSuffix(o.Kind, "List") || items == nil {
		return nil, false
	}
	return items.Content, items.Kind == yaml.SequenceNode || items.Tag == yaml.NodeTagNull
}

// missing returns the first field that every object must have and this object lacks.
func (o Object) missing() string {
	switch {
	case o.APIVersion == "":
		return "apiVersion"
	case o.Kind == "":
		return "kind"
	case o.Name == "":
		return "metadata.name"
	}
	return ""
}

// problem adds a finding at the start of a node.
func (d *document) problem(n *yaml.Node, o Object, message, hint string) {
	p := Problem{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, Message: message, Hint: hint}
	if n != nil {
		p.Position = Position{Line: n.Line, Column: n.Column}
	}
	d.problems = append(d.problems, p)
}

// chunk is one document of a YAML file, and how many lines come before it.
type chunk struct {
	text  []byte
	lines int
}

// splitYAML splits a stream into its documents before anything is parsed, so that a document that is not YAML
// harms only itself. A line that starts with "---" or "..." bounds a document wherever it stands, even in a
// block of text (YAML 1.2, section 9.1.2). Chunks without content are left out.
func splitYAML(data []byte) []chunk {
	var chunks []chunk
	start, startLine, line := 0, 0, 0
	cut := func(end int) {
		if text := data[start:end]; hasContent(text) {
			chunks = append(chunks, chunk{text, startLine})
		}
		start, startLine = end, line
	}
	for offset := 0; offset < len(data); line++ {
		end := len(data)
		if i := bytes.IndexByte(data[offset:], '\n'); i >= 0 {
			end = offset + i + 1
		}
		switch {
		case isMarker(data[offset:end], "---"):
			cut(offset)
		case isMarker(data[offset:end], "..."):
			cut(offset)
			start, startLine = end, line+1
		}
		offset = end
	}
	cut(len(data))
	return chunks
}

// isMarker reports whether a line is the given document marker, perhaps followed by white space and more.
func isMarker(line []byte, marker string) bool {
	rest, ok := bytes.CutPrefix(line, []byte(marker))
	return ok && (len(rest) == 0 || bytes.IndexByte([]byte(" \t\r\n"), rest[0]) >= 0)
}

// hasContent reports whether a chunk is more than blank lines, comments,
// directives and a bare marker.
func hasContent(text []byte) bool {
	for line := range bytes.Lines(text) {
		if isMarker(line, "---") {
			line = line[len("---"):]
		} else if line[0] == '%' {
			continue
		}
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return true
		}
	}
	return false
}

// parseJSON reads a stream of JSON values as trees of the nodes that YAML gives. It does not read JSON as YAML,
// which has other escapes. At a syntax error it returns the values before it and a problem, whose line is
// relative.
func parseJSON(data []byte) ([]*yaml.Node, *Problem) {
	p := jsonParser{data: data, dec: json.NewDecoder(bytes.NewReader(data))}
	p.dec.UseNumber()
	var values []*yaml.Node
	for {
		value, err := p.value()
		switch {
		case errors.Is(err, io.EOF) && p.depth == 0:
			return values, nil
		case err != nil:
			return values, p.problem(err)
		}
		values = append(values, value)
	}
}

// jsonParser builds nodes from the tokens of a decoder. It counts as it goes: line is the number of lines
// before, and column the number of characters of the line before.
type jsonParser struct {
	data         []byte
	dec          *json.Decoder
	depth        int
	seen         int
	line, column int
}

// value reads one value, or io.EOF at the end of the stream.
func (p *jsonParser) value() (*yaml.Node, error) {
	node := p.next()
	token, err := p.dec.Token()
	if err != nil {
		return nil, err
	}
	switch t := token.(type) {
	case json.Delim:
		return node, p.collection(node, t)
	case string:
		node.Tag, node.Value, node.Style = yaml.NodeTagString, t, yaml.DoubleQuotedStyle
	case json.Number:
		node.Tag, node.Value = yaml.NodeTagFloat, t.String()
	case bool:
		node.Tag, node.Value = yaml.NodeTagBool, map[bool]string{true: "true", false: "false"}[t]
	case nil:
		node.Tag, node.Value = yaml.NodeTagNull, "null"
	}
	return node, nil
}

// collection reads the members of an object or array up to its end.
func (p *jsonParser) collection(node *yaml.Node, open json.Delim) error {
	node.Kind, node.Tag = yaml.SequenceNode, yaml.NodeTagSeq
	if open == '{' {
		node.Kind, node.Tag = yaml.MappingNode, yaml.NodeTagMap
	}
	if p.depth++; p.depth > maxDepth {
		return errTooDeep
	}
	for p.dec.More() {
		member, err := p.value() // a key and its value are members alike
		if err != nil {
			return err
		}
		node.Content = append(node.Content, member)
	}
	_, err := p.dec.Token()
	p.depth--
	return err
}

// next returns a scalar node at the place where the next token starts.
func (p *jsonParser) next() *yaml.Node {
	start := int(p.dec.InputOffset())
	for start < len(p.data) && bytes.IndexByte([]byte(" \t\r\n,:"), p.data[start]) >= 0 {
		start++
	}
	line, column := p.locate(start)
	return &yaml.Node{Kind: yaml.ScalarNode, Line: line, Column: column}
}

// locate returns the line and column of an offset, which never decreases. It looks at no byte twice, since all
// may be on one line.
func (p *jsonParser) locate(offset int) (line, column int) {
	for ; p.seen < min(offset, len(p.data)); p.seen++ {
		if p.data[p.seen] == '\n' {
			p.line, p.column = p.line+1, 0
		} else if utf8.RuneStart(p.data[p.seen]) {
			p.column++
		}
	}
	return p.line + 1, p.column + 1
}

// problem turns an error of the decoder into one with a place.
func (p *jsonParser) problem(err error) *Problem {
	offset := int(p.dec.InputOffset())
	message := "not JSON: " + err.Error()
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax):
		offset = max(int(syntax.Offset)-1, offset)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		offset, message = len(p.data), "not JSON: the file ends in the middle of a value"
	}
	line, column := p.locate(offset)
	return &Problem{
		Position: Position{Line: line, Column: column}, Message: message,
		Hint: "nothing after this place in the file was read",
	}
}

// The limits of one document. They stop documents whose aliases expand into
// billions of nodes, or that are nested without end.
const (
	maxAliased = 100_000 // nodes, beside ten times as many as are written out
	maxDepth   = 200
)

var (
	errTooDeep  = fmt.Errorf("nested more than %d levels deep", maxDepth)
	errTooLarge = errors.New("its aliases stand for too many values")
)

// expand replaces aliases by their values and merges "<<" keys, so that the rest of this package sees plain
// trees.
func expand(n *yaml.Node) (*yaml.Node, error) {
	if isPlain(n, 0) {
		return n, nil
	}
	budget := maxAliased + 10*count(n)
	return expandNode(n, 0, &budget)
}

// isPlain reports whether there is nothing to expand, and no limit in reach.
func isPlain(n *yaml.Node, depth int) bool {
	if n.Kind == yaml.AliasNode || n.Tag == yaml.MergeTag || depth > maxDepth {
		return false
	}
	for _, c := range n.Content {
		if !isPlain(c, depth+1) {
			return false
		}
	}
	return true
}

// count counts the nodes that are written out.
func count(n *yaml.Node) int {
	total := 1
	for _, c := range n.Content {
		total += count(c)
	}
	return total
}

func expandNode(n *yaml.Node, depth int, budget *int) (*yaml.Node, error) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if *budget--; *budget < 0 {
		return n, errTooLarge
	}
	if depth > maxDepth {
		return n, errTooDeep
	}
	if len(n.Content) == 0 {
		return n, nil
	}
	out := *n
	out.Content = make([]*yaml.Node, len(n.Content))
	for i, c := range n.Content {
		var err error
		if out.Content[i], err = expandNode(c, depth+1, budget); err != nil {
			return n, err
		}
	}
	if out.Kind == yaml.MappingNode {
		out.Content = mergeKeys(out.Content)
	}
	return &out, nil
}

// mergeKeys replaces "<<" by those fields of its value that the mapping does not have itself. Of several values
// the first wins.
func mergeKeys(content []*yaml.Node) []*yaml.Node {
	plain, merged := make([]*yaml.Node, 0, len(content)), []*yaml.Node(nil)
	for i := 0; i+1 < len(content); i += 2 {
		switch key, value := content[i], content[i+1]; {
		case key.Tag != yaml.MergeTag:
			plain = append(plain, key, value)
		case value.Kind == yaml.SequenceNode:
			merged = append(merged, value.Content...)
		default:
			merged = append(merged, value)
		}
	}
	target := &yaml.Node{Kind: yaml.MappingNode, Content: plain}
	for _, m := range merged {
		for i := 0; m.Kind == yaml.MappingNode && i+1 < len(m.Content); i += 2 {
			if key, _ := field(target, m.Content[i].Value); key == nil {
				target.Content = append(target.Content, m.Content[i], m.Content[i+1])
			}
		}
	}
	return target.Content
}
