package manifests

import (
	"errors"
	"fmt"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

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

// expand replaces aliases by what they stand for and merges "<<" keys, so that
// the rest of this package sees plain trees.
func expand(n *yaml.Node) (*yaml.Node, error) {
	if isPlain(n, 0) {
		return n, nil
	}
	budget := maxAliased + 10*count(n)
	return expandNode(n, 0, &budget)
}

// isPlain reports whether there is nothing to expand, nor any limit in reach.
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

// mergeKeys replaces "<<" by the fields of its value that the mapping does not
// give itself; of several values the first wins.
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
