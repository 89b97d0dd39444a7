package mutants

var mutants = []mutant{}
