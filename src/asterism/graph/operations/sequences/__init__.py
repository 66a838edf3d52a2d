"""Operations on texts and other sequences.

attention  attention, products of two values
embedding  embedding
masks      what hides some numbers from others
tables     the beginning of a weight
recurrent  lstm, gru
"""
